//! One simulated GPU alive: the capacity model in real time, its requests, faults and figures.
//!
//! Events carry the exact time of the model; a request hears of them at the next millisecond tick of
//! the timer, so a latency is up to 1 ms late, but no lateness adds up: the next request of the queue
//! was admitted at the exact time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};

use crate::capacity::{Capacity, Event, Job, JobId, Limits, Step};
use crate::config::GpuConfig;
use crate::fault::{Fault, Order, SLOW_FACTOR};
use crate::ledger::{End, Ledger, Presence};
use crate::metrics::{Counters, Now};
use crate::profile::Profile;

pub(crate) struct Gpu {
    pub(crate) config: GpuConfig,
    pub(crate) profile: Profile,
    epoch: Instant,
    state: Mutex<State>,
    wake: Notify,
    fault: watch::Sender<Fault>,
}

pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) counters: Counters,
    capacity: Capacity,
    waiters: HashMap<JobId, Waiter>,
    error_rate: f64,
    temperature_c: Option<i64>,
    speed_factor: f64,
    chance: u64,
}

struct Waiter {
    job: Job,
    arrived_ms: f64,
    steps: mpsc::UnboundedSender<Moment>,
}

/// A step of one request and how long after its arrival it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) step: Step,
    pub(crate) after_ms: f64,
}

impl Gpu {
    pub(crate) fn new(config: GpuConfig, seed: u64, epoch: Instant) -> anyhow::Result<Arc<Self>> {
        let profile = config.profile()?;
        let limits =
            Limits { slots: profile.slots, beta: profile.beta, kv_tokens: profile.kv_tokens() };
        let state = State {
            ledger: Ledger::default(),
            counters: Counters::default(),
            capacity: Capacity::new(limits, profile.speed),
            waiters: HashMap::new(),
            error_rate: 0.0,
            temperature_c: None,
            speed_factor: 1.0,
            chance: seed ^ u64::from(config.listen.port()),
        };
        Ok(Arc::new(Self {
            config,
            profile,
            epoch,
            state: Mutex::new(state),
            wake: Notify::new(),
            fault: watch::channel(Fault::None).0,
        }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.config.listen
    }

    pub(crate) fn faults(&self) -> watch::Receiver<Fault> {
        self.fault.subscribe()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64() * 1e3
    }

    /// Plays the model in real time for as long as the process lives.
    pub(crate) async fn drive(self: Arc<Self>) {
        loop {
            let next_at_ms = {
                let now_ms = self.now_ms();
                let mut state = self.state();
                state.with_capacity(|capacity, events| capacity.advance(now_ms, events));
                state.capacity.next_at_ms()
            };
            let at = next_at_ms
                .map(|at_ms| self.epoch + Duration::from_secs_f64(at_ms.clamp(0.0, 1e12) / 1e3));
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Hands in a request's work; dropping the result takes it out again.
    pub(crate) fn generate(self: &Arc<Self>, mut job: Job) -> Generation {
        if *self.fault.borrow() == Fault::Slow {
            job.prefill_ms *= SLOW_FACTOR;
            job.decode_ms *= SLOW_FACTOR;
        }
        let (steps, receiver) = mpsc::unbounded_channel();
        let now_ms = self.now_ms();
        let id = {
            let mut state = self.state();
            let mut events = Vec::new();
            let id = state.capacity.submit(now_ms, job, &mut events);
            state.waiters.insert(id, Waiter { job, arrived_ms: now_ms, steps });
            state.deliver(&events);
            id
        };
        self.wake.notify_one();
        Generation { gpu: Arc::clone(self), id, job, steps: receiver }
    }

    /// Books an arrival and draws the fault that it meets.
    pub(crate) fn arrive(self: &Arc<Self>, steering_header: Presence) -> (Visit, Fault) {
        let mut fault = *self.fault.borrow();
        let mut state = self.state();
        state.ledger.start(steering_header);
        if fault == Fault::None && state.error_rate > 0.0 && state.unit() < state.error_rate {
            fault = Fault::Error500;
        }
        state.ledger.faulted += u64::from(fault != Fault::None);
        drop(state);
        (Visit { gpu: Arc::clone(self), end: End::Cancelled }, fault)
    }

    pub(crate) fn obey(self: &Arc<Self>, order: Order) {
        if order.after_ms == 0 && order.for_ms.is_none() {
            return self.apply(&order);
        }
        let gpu = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(order.after_ms)).await;
            gpu.apply(&order);
            if let Some(for_ms) = order.for_ms {
                tokio::time::sleep(Duration::from_millis(for_ms)).await;
                gpu.fault.send_replace(Fault::None);
            }
        });
    }

    fn apply(&self, order: &Order) {
        let now_ms = self.now_ms();
        let mut state = self.state();
        if let Some(factor) = order.speed {
            let speed = self.profile.speed * factor;
            state.speed_factor = factor;
            state.with_capacity(|capacity, events| capacity.set_speed(now_ms, speed, events));
        }
        state.error_rate = order.error_rate.unwrap_or(state.error_rate);
        if let Some(temperature_c) = order.temperature_c {
            state.temperature_c = (temperature_c >= 0).then_some(temperature_c);
        }
        drop(state);
        if let Some(fault) = order.fault {
            self.fault.send_replace(fault);
        }
        self.wake.notify_one();
    }

    pub(crate) fn fault(&self) -> Fault {
        *self.fault.borrow()
    }

    /// The engine at this moment.
    pub(crate) fn now(&self) -> Now {
        let now_ms = self.now_ms();
        let mut state = self.state();
        state.with_capacity(|capacity, events| capacity.advance(now_ms, events));
        Now {
            running: state.capacity.running(),
            waiting: state.capacity.waiting(),
            kv_ratio: state.capacity.kv_ratio(),
            kv_tokens: self.profile.kv_tokens(),
        }
    }

    /// What the driver would show now; the load is the mean since `busy_slot_ms` at `since_ms`.
    pub(crate) fn gauge(&self, since: &mut Since) -> Gauge {
        let now_ms = self.now_ms();
        let kv_ratio = self.now().kv_ratio;
        let state = self.state();
        let busy_slot_ms = state.capacity.busy_slot_ms();
        let passed_slot_ms = (now_ms - since.at_ms) * self.profile.slots as f64;
        let busy_ratio = if passed_slot_ms > 0.0 {
            ((busy_slot_ms - since.busy_slot_ms) / passed_slot_ms).clamp(0.0, 1.0)
        } else {
            0.0
        };
        *since = Since { at_ms: now_ms, busy_slot_ms };
        Gauge {
            busy_ratio,
            kv_ratio,
            speed_factor: state.speed_factor,
            temperature_c: state.temperature_c,
        }
    }
}

/// Where the last mean of the load ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since {
    at_ms: f64,
    busy_slot_ms: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge {
    /// Mean share of busy slots.
    pub(crate) busy_ratio: f64,
    pub(crate) kv_ratio: f64,
    pub(crate) speed_factor: f64,
    /// Ordered temperature, if any.
    pub(crate) temperature_c: Option<i64>,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

impl State {
    fn with_capacity(&mut self, change: impl FnOnce(&mut Capacity, &mut Vec<Event>)) {
        let mut events = Vec::new();
        change(&mut self.capacity, &mut events);
        self.deliver(&events);
    }

    fn deliver(&mut self, events: &[Event]) {
        for event in events {
            let Some(waiter) = self.waiters.get(&event.id) else { continue };
            let after_ms = (event.at_ms - waiter.arrived_ms).max(0.0);
            // The receiver may have gone: its request is then about to be cancelled.
            let _ = waiter.steps.send(Moment { step: event.step, after_ms });
            match event.step {
                Step::Admitted => self.counters.queue.record(after_ms / 1e3),
                Step::Piece(1) => {
                    self.counters.ttft.record(after_ms / 1e3);
                    self.counters.prompt_tokens += waiter.job.prompt_tokens;
                    self.counters.generation_tokens += waiter.job.tokens_through(1);
                }
                Step::Piece(piece) => {
                    let job = &waiter.job;
                    self.counters.generation_tokens +=
                        job.tokens_through(piece) - job.tokens_through(piece - 1);
                }
                Step::Finished => {
                    self.counters.e2e.record(after_ms / 1e3);
                    self.counters.success += 1;
                    self.waiters.remove(&event.id);
                }
            }
        }
    }

    /// A uniform number in 0..1 (splitmix64).
    fn unit(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A request's work on the GPU.
pub(crate) struct Generation {
    gpu: Arc<Gpu>,
    id: JobId,
    pub(crate) job: Job,
    steps: mpsc::UnboundedReceiver<Moment>,
}

impl Generation {
    /// The next step; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Moment> {
        self.steps.recv().await
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let now_ms = self.gpu.now_ms();
        let mut state = self.gpu.state();
        if state.waiters.remove(&self.id).is_some() {
            let id = self.id;
            state.with_capacity(|capacity, events| capacity.cancel(now_ms, id, events));
            drop(state);
            self.gpu.wake.notify_one();
        }
    }
}

/// One request in the ledger: booked as cancelled unless something else is said before it is dropped.
pub(crate) struct Visit {
    gpu: Arc<Gpu>,
    end: End,
}

impl Visit {
    pub(crate) fn set(&mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.gpu.state().ledger.end(self.end);
    }
}
