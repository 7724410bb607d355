//! What the parts of a running control plane share.
//!
//! Each lock is held for a short calculation, never across an await. A poisoned lock is used on: the
//! data in it is replaced by the next report anyway.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate_policy::units::Time;
use tidegate_weighting::{
    Inputs, Weigher,
    input::{EndpointDefinition, GpuRef},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    bucket::Bucket,
    config::Config,
    discovery::{Directory, DiscoveryStatus},
    metrics::{Cause, Metrics, StreamKind, StreamRefusal},
    proxies::Proxies,
    publish::Snapshot,
    store::{Store, Stream, StreamId},
};

/// Where the clock of decisions starts: above zero, so that an age never reaches before its start.
const CLOCK_START_MS: u64 = 1_000_000;

#[derive(Debug)]
pub struct Core {
    pub config: Config,
    pub metrics: Metrics,
    pub instance: u64,
    /// Rung when something must be told before the next period.
    pub events: Notify,
    /// Rung when a report was taken.
    pub reports: Notify,
    pub stop: CancellationToken,
    started: Instant,
    store: Mutex<Store>,
    proxies: Mutex<Proxies>,
    directory: Mutex<Option<Arc<Directory>>>,
    discovery: Mutex<DiscoveryStatus>,
    weigher: Mutex<Weigher>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    new_streams: Mutex<Bucket>,
    next_stream: AtomicU64,
}

impl Core {
    #[must_use]
    pub fn new(config: Config) -> Arc<Self> {
        let now = Instant::now();
        let limits = &config.limits;
        Arc::new(Self {
            metrics: Metrics::default(),
            instance: rand::random(),
            events: Notify::new(),
            reports: Notify::new(),
            stop: CancellationToken::new(),
            started: now,
            store: Mutex::new(Store::new(limits)),
            proxies: Mutex::new(Proxies::default()),
            directory: Mutex::new(None),
            discovery: Mutex::new(DiscoveryStatus::default()),
            weigher: Mutex::new(Weigher::new(config.weighting.clone())),
            snapshots: watch::Sender::new(None),
            new_streams: Mutex::new(Bucket::new(
                now,
                limits.streams_per_second,
                limits.streams_burst,
            )),
            next_stream: AtomicU64::new(1),
            config,
        })
    }

    /// The receiver's clock, in the form that decisions take it.
    #[must_use]
    pub fn time(&self, now: Instant) -> Time {
        let passed = now.saturating_duration_since(self.started).as_millis();
        Time::ms(CLOCK_START_MS.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    pub fn proxies(&self) -> MutexGuard<'_, Proxies> {
        lock(&self.proxies)
    }

    #[must_use]
    pub fn directory(&self) -> Option<Arc<Directory>> {
        lock(&self.directory).clone()
    }

    #[must_use]
    pub fn discovery(&self) -> DiscoveryStatus {
        lock(&self.discovery).clone()
    }

    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.borrow().clone()
    }

    #[must_use]
    pub fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.subscribe()
    }

    /// Takes what discovery found: its state, and a directory where there is a new one.
    pub fn discovered(&self, status: &DiscoveryStatus, directory: Option<Directory>) {
        lock(&self.discovery).clone_from(status);
        if let Some(directory) = directory {
            self.proxies().direct(&directory);
            *lock(&self.directory) = Some(Arc::new(directory));
            self.events.notify_one();
        }
    }

    /// Why this process is not ready to serve proxies; empty when it is.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.stop.is_cancelled() {
            reasons.push("stopping".into());
        }
        if self.directory().is_none() {
            reasons.push("no discovery file is in force".into());
        } else if self.snapshot().is_none() {
            reasons.push("waiting for the first reports".into());
        }
        reasons
    }

    /// Admits one more stream, or says why not.
    ///
    /// # Errors
    /// Too many streams are open, or too many came at once.
    pub fn admit(self: &Arc<Self>, kind: StreamKind) -> Result<Admitted, Status> {
        let limits = &self.config.limits;
        let max = match kind {
            StreamKind::Report => limits.report_streams,
            StreamKind::Watch => limits.watch_streams,
        };
        let level = self.metrics.streams(kind);
        if !level.try_up(u64::try_from(max).unwrap_or(u64::MAX)) {
            self.metrics.stream_refused(StreamRefusal::Count);
            let text = format!("{max} {} streams are open", kind.as_str());
            return Err(Status::resource_exhausted(text));
        }
        if !lock(&self.new_streams).take(Instant::now()) {
            level.down();
            self.metrics.stream_refused(StreamRefusal::Rate);
            return Err(Status::unavailable("too many new streams at once; come back later"));
        }
        let id = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let stream = Stream { id, stop: self.stop.child_token() };
        Ok(Admitted { core: Arc::clone(self), kind, stream })
    }

    /// One step: inputs to weights to the next snapshot.
    pub fn step(&self, cause: Cause) {
        let Some(directory) = self.directory() else { return };
        let now = Instant::now();
        let timeouts = &self.config.timeouts;
        let nodes = {
            let mut store = self.store();
            store.expire(now, timeouts.node_expiry);
            store.reports()
        };
        if self.snapshot().is_none() && self.is_warming_up(now, &directory, &nodes) {
            return;
        }
        let (feedback, services, proxies_live) = {
            let mut proxies = self.proxies();
            proxies.expire(now, timeouts.feedback_expiry);
            let live = u32::try_from(proxies.len()).unwrap_or(u32::MAX);
            let sums = proxies.endpoint_sums(now, timeouts.feedback_expiry);
            (sums, proxies.service_sums(), live)
        };
        let inputs = Inputs { endpoints: definitions(&directory), nodes, feedback, services };
        let time = self.time(now);
        let fleet = lock(&self.weigher).step(time, &inputs);
        self.snapshots.send_modify(|current| {
            let before = current.clone();
            let next = match current {
                Some(snapshot) => snapshot.next(time, fleet, proxies_live),
                None => Snapshot::empty(self.instance, self.config.period).next(
                    time,
                    fleet,
                    proxies_live,
                ),
            };
            crate::changes::log(before.as_deref(), &next);
            *current = Some(Arc::new(next));
        });
        self.metrics.step(cause);
        self.metrics.step_nanos.add(u64::try_from(now.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Whether nodes that discovery names may still be on their way after a start.
    fn is_warming_up(
        &self,
        now: Instant,
        directory: &Directory,
        nodes: &[tidegate_weighting::input::NodeReport],
    ) -> bool {
        if now.saturating_duration_since(self.started) >= self.config.timeouts.warm_up {
            return false;
        }
        let mut named =
            directory.services.iter().flat_map(|s| &s.endpoints).filter_map(|e| e.node.as_ref());
        named.any(|name| !nodes.iter().any(|n| n.node == *name))
    }
}

/// One stream that was admitted; it counts until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    pub core: Arc<Core>,
    pub kind: StreamKind,
    pub stream: Stream,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        match self.kind {
            StreamKind::Report => self.core.store().close(self.stream.id),
            StreamKind::Watch => {
                self.core.proxies().close(self.stream.id);
            }
        }
        self.core.metrics.streams(self.kind).down();
    }
}

/// Discovery's directory as weighting reads it.
fn definitions(directory: &Directory) -> Vec<EndpointDefinition> {
    let services = directory.services.iter();
    services
        .flat_map(|s| {
            s.endpoints.iter().map(|e| EndpointDefinition {
                service: s.name.clone(),
                address: e.address.clone(),
                node: e.node.clone(),
                gpus: e.gpus.iter().map(|g| gpu_ref(g)).collect(),
                capacity: e.capacity,
                is_draining: e.draining,
            })
        })
        .collect()
}

fn gpu_ref(text: &str) -> GpuRef {
    text.parse().map_or_else(|_| GpuRef::Uuid(text.into()), GpuRef::Index)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
