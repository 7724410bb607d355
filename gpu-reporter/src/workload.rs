//! Which model servers run on this node: a file, read again when it changes.
//!
//! A file that does not read leaves the old list in force, says why once, and shows in a gauge; a
//! missing file is such a file. Endpoints are bound to GPUs by UUID, since an index may change.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tidegate_reporter_config::{GpuName, Workload, Workloads, parse_workloads};

use crate::{
    engine::{Engines, Scraper},
    sample::{Gpu, WorkloadView},
};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// The list in force, shared with the uplink.
#[derive(Clone, Default)]
pub struct WorkloadList {
    list: Arc<Mutex<Vec<Workload>>>,
    invalid: Arc<AtomicBool>,
}

impl WorkloadList {
    #[must_use]
    pub fn current(&self) -> Vec<Workload> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the file as it stands could be read.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.invalid.load(Ordering::Relaxed)
    }

    fn set(&self, list: Vec<Workload>) {
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list;
    }

    /// The list for a report: endpoints, UUIDs and what the model servers say.
    #[must_use]
    pub fn view(
        &self,
        gpus: &[Gpu],
        engines: &Engines,
        now: Instant,
        period: Duration,
    ) -> Vec<WorkloadView> {
        let view = |workload: &Workload| WorkloadView {
            endpoint: workload.endpoint.to_string(),
            service: workload.service.clone(),
            gpu_uuids: workload.gpus.iter().filter_map(|name| uuid_of(name, gpus)).collect(),
            namespace: workload.namespace.clone(),
            pod: workload.pod.clone(),
            engine: engines.of(workload.endpoint, now, period),
        };
        self.current().iter().map(view).collect()
    }
}

fn uuid_of(name: &GpuName, gpus: &[Gpu]) -> Option<String> {
    match name {
        GpuName::Uuid(uuid) => Some(uuid.clone()),
        // Where two GPUs claim an index, the missing one is not meant.
        GpuName::Index(index) => gpus
            .iter()
            .filter(|gpu| gpu.identity.index == *index)
            .min_by_key(|gpu| gpu.state == crate::sample::GpuState::Missing)
            .map(|gpu| gpu.identity.uuid.clone()),
    }
}

type Stamp = Option<(i64, i64, u64, u64)>;

/// Follows the file.
pub struct WorkloadFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    list: WorkloadList,
}

impl WorkloadFile {
    #[must_use]
    pub const fn new(path: PathBuf, list: WorkloadList) -> Self {
        Self { path, stamp: None, list }
    }

    /// Looks for ever, and keeps the scraping tasks in step.
    pub async fn run(mut self, mut scraper: Scraper) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            if self.look() {
                scraper.follow(&self.list.current());
            }
        }
    }

    /// Reads the file if it changed; `true` if another list is in force.
    pub fn look(&mut self) -> bool {
        let stamp = stamp(&self.path);
        if self.stamp == Some(stamp) {
            return false;
        }
        self.stamp = Some(stamp);
        match read(&self.path) {
            Ok(workloads) => {
                self.list.invalid.store(false, Ordering::Relaxed);
                let count = workloads.workloads.len();
                tracing::info!(path = %self.path.display(), count, "workloads read");
                self.list.set(workloads.workloads);
                true
            }
            Err(problems) => {
                self.list.invalid.store(true, Ordering::Relaxed);
                for problem in problems {
                    tracing::error!(path = %self.path.display(), %problem, "workloads not read, the old list stays");
                }
                false
            }
        }
    }
}

/// Reads a workloads file.
///
/// # Errors
/// Every problem, one text each.
pub fn read(path: &Path) -> Result<Workloads, Vec<String>> {
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let bytes = fs::metadata(path).map_err(|e| one(&e))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(vec![format!("{bytes} bytes are more than {FILE_BYTES_MAX}")]);
    }
    let text = fs::read_to_string(path).map_err(|e| one(&e))?;
    let value = serde_saphyr::from_str(&text).map_err(|e| one(&e))?;
    parse_workloads(&value).map_err(|all| all.iter().map(ToString::to_string).collect())
}

fn stamp(path: &Path) -> Stamp {
    let meta = fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()))
}
