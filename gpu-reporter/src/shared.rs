//! What the threads of the reporter share.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tidegate_reporter_config::{GpuName, ReporterConfig};

use crate::{
    board::{AgeLimits, Board},
    device::Listing,
    nvml::Library,
    watch::Costs,
};

/// Bounds of the period, also for what the control plane wishes.
pub const INTERVAL_MS: std::ops::RangeInclusive<u64> = 100..=10_000;
/// How long the medium tier runs with the fast one on a GPU that had an event.
pub const BOOST: Duration = Duration::from_secs(5);

/// How the driver is read.
#[derive(Clone, Debug)]
pub struct Sampling {
    pub nvml_lib: Option<String>,
    pub gpus: Vec<GpuName>,
    pub expected_gpus: Option<u32>,
    pub medium: Duration,
    pub slow: Duration,
    pub slow_call: Duration,
    pub hung_call: Duration,
    pub processes: Listing,
}

impl From<&ReporterConfig> for Sampling {
    fn from(config: &ReporterConfig) -> Self {
        Self {
            nvml_lib: config.nvml_lib.clone(),
            gpus: config.gpus.clone(),
            expected_gpus: config.expected_gpus,
            medium: Duration::from_millis(config.medium_interval_ms),
            slow: Duration::from_millis(config.slow_interval_ms),
            slow_call: Duration::from_millis(config.slow_call_ms),
            hung_call: Duration::from_millis(config.hung_call_ms),
            processes: if config.processes { Listing::On } else { Listing::Off },
        }
    }
}

/// The open library and its number: handles of an older number are void.
#[derive(Clone)]
pub struct Opened {
    pub library: Arc<Library>,
    pub epoch: u64,
}

#[derive(Default)]
struct State {
    opened: Option<Opened>,
    epochs: u64,
    /// GPUs with a thread stuck in one of their calls; nobody else touches them.
    stuck: BTreeSet<u32>,
    /// GPUs that the current sampler has opened.
    attached: BTreeSet<u32>,
    /// GPUs to be read at once, all tiers.
    boosted: Vec<(u32, Instant)>,
    /// Counts up whenever the threads should look around.
    wakes: u64,
}

/// See the module.
pub struct Shared {
    pub sampling: Sampling,
    pub board: Board,
    pub costs: Arc<Costs>,
    interval_ms: AtomicU64,
    state: Mutex<State>,
    wake: Condvar,
}

impl Shared {
    #[must_use]
    pub fn new(sampling: Sampling, interval_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            sampling,
            board: Board::default(),
            costs: Arc::new(Costs::default()),
            interval_ms: AtomicU64::new(interval_ms),
            state: Mutex::new(State::default()),
            wake: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(Ordering::Relaxed))
    }

    /// Takes the control plane's wish, within bounds.
    pub fn set_interval_ms(&self, wished_ms: u64) {
        let ms = wished_ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
        if self.interval_ms.swap(ms, Ordering::Relaxed) != ms {
            tracing::info!(interval_ms = ms, "period changed by the control plane");
            self.wake_threads();
        }
    }

    #[must_use]
    pub fn age_limits(&self) -> AgeLimits {
        AgeLimits::of_periods(self.interval(), self.sampling.medium)
    }

    /// The library, if it is open.
    #[must_use]
    pub fn opened(&self) -> Option<Opened> {
        self.lock().opened.clone()
    }

    /// Hands a newly opened library to all threads.
    pub fn set_opened(&self, library: Arc<Library>) -> Opened {
        let mut state = self.lock();
        state.epochs += 1;
        let opened = Opened { library, epoch: state.epochs };
        state.opened = Some(opened.clone());
        state.attached.clear();
        opened
    }

    /// Takes the library away from all threads, so that the last one closes it.
    pub fn set_closed(&self) {
        let mut state = self.lock();
        state.opened = None;
        state.attached.clear();
        drop(state);
        self.wake_threads();
    }

    pub fn set_stuck(&self, gpu: u32) {
        let mut state = self.lock();
        state.stuck.insert(gpu);
        state.attached.remove(&gpu);
    }

    pub fn set_free(&self, gpu: u32) {
        self.lock().stuck.remove(&gpu);
        self.wake_threads();
    }

    #[must_use]
    pub fn is_stuck(&self, gpu: u32) -> bool {
        self.lock().stuck.contains(&gpu)
    }

    pub fn set_attached(&self, gpu: u32) {
        self.lock().attached.insert(gpu);
    }

    pub fn set_detached(&self, gpu: u32) {
        self.lock().attached.remove(&gpu);
    }

    /// GPUs that are open and free: those whose events can be watched.
    #[must_use]
    pub fn watchable(&self) -> BTreeSet<u32> {
        let state = self.lock();
        state.attached.difference(&state.stuck).copied().collect()
    }

    /// Has the GPU read at once and its medium tier with every round for [`BOOST`].
    pub fn boost(&self, gpu: u32) {
        let mut state = self.lock();
        let until = Instant::now() + BOOST;
        match state.boosted.iter_mut().find(|(g, _)| *g == gpu) {
            Some(entry) => entry.1 = until,
            None => {
                state.boosted.push((gpu, until));
                state.wakes += 1;
                self.wake.notify_all();
            }
        }
    }

    /// Whether the GPU had an event within [`BOOST`].
    #[must_use]
    pub fn is_boosted(&self, gpu: u32) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        state.boosted.retain(|(_, until)| *until > now);
        state.boosted.iter().any(|(g, _)| *g == gpu)
    }

    pub fn wake_threads(&self) {
        self.lock().wakes += 1;
        self.wake.notify_all();
    }

    /// Blocks this thread for `span`, or until someone wakes the threads.
    pub fn wait(&self, span: Duration) {
        let state = self.lock();
        let before = state.wakes;
        drop(self.wake.wait_timeout_while(state, span, |state| state.wakes == before));
    }
}
