//! One VM: its configuration, its tick, and its share of what the VMs of the process do together.
//!
//! A tick, in order: read the snapshot if it changed; exchange counters with the other workers; let the
//! gate move on; lead or follow in talking to the control plane. Everything in shared data carries the
//! format version in its key, since it outlives the VM and, on a hot update, the module.

use crate::host;
use crate::http::Request;
use crate::settings;
use crate::stats::{Metric, Stats};
use crate::upstream::grpc_service;
use crate::watch::Watch;
use crate::wire::{self, ConfigState};
use core::time::Duration;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::cell::RefCell;
use std::rc::Rc;
use tidegate_policy::chance::Chance;
use tidegate_policy::config::{Config, ExistingList};
use tidegate_policy::gate::Gate;
use tidegate_policy::lease::{self, Lease, Step};
use tidegate_policy::slots::{Card, Place, SLOTS, place};
use tidegate_policy::snapshot::Fleet;
use tidegate_policy::units::Time;

/// Counters reach the other workers, and a silent stream is noticed, to this precision.
const TICK: Duration = Duration::from_millis(50);
const KEYS: &str = "tidegate.1.";
/// Longest part of the proxy id that comes from Envoy's node id.
const NODE_ID_BYTES_MAX: usize = 128;

/// What a worker's requests share.
pub(crate) struct Worker {
    pub(crate) config: Rc<Config>,
    pub(crate) gate: Gate,
    pub(crate) chance: Chance,
    pub(crate) stats: Stats,
    /// Whether any service looks at the cluster, or at an earlier picker's list.
    pub(crate) wants_cluster: bool,
    pub(crate) wants_list: bool,
}

impl Worker {
    fn new(config: Config, me: u64) -> Self {
        let config = Rc::new(config);
        Self {
            gate: Gate::new(host::now(), me, Rc::clone(&config)),
            chance: Chance::seeded(me),
            stats: Stats::default(),
            wants_cluster: config.services.iter().any(|s| !s.matcher.clusters.is_empty()),
            wants_list: config.services.iter().any(|s| s.existing_list == ExistingList::Reorder),
            config,
        }
    }

    /// The label of a service.
    pub(crate) fn label(config: &Config, index: usize) -> Option<(u16, &str)> {
        Some((u16::try_from(index).ok()?, config.services.get(index)?.name.as_str()))
    }
}

/// The root context; without a usable configuration it does nothing and requests pass.
#[derive(Default)]
pub(crate) struct Root {
    /// Unique for this VM start: shared data outlives a VM.
    me: u64,
    /// Tells this plugin's keys from those of another plugin in the same VM.
    plugin: String,
    running: Option<Running>,
}

struct Running {
    worker: Rc<RefCell<Worker>>,
    watch: Watch,
    fleet: Fleet,
    seen: host::Cas,
    /// Fingerprint of what is wanted of the control plane, and the keys of its shared data.
    plane: String,
    prefix: String,
    leads: bool,
}

impl Root {
    fn configure(&mut self, bytes: &[u8]) {
        let id = host::entropy();
        self.me = Chance::seeded(id).bits();
        self.plugin = host::property(&["plugin_name"])
            .map_or_else(String::new, |name| String::from_utf8_lossy(&name).into_owned());
        let kept = format!("{KEYS}config.{}", self.plugin);
        let (config, state, error) = match settings::read(bytes).and_then(usable) {
            Ok(config) => {
                host::share(&kept, bytes, None);
                (Some(config), ConfigState::Ok, String::new())
            }
            Err(error) => match settings::read(&host::shared(&kept).0).and_then(usable) {
                Ok(config) => (Some(config), ConfigState::LastGood, error),
                Err(_) => (None, ConfigState::PassThrough, error),
            },
        };
        Stats::default().set(Metric::ConfigState, None, state as u64);
        let key = format!("{KEYS}config.state.{}", self.plugin);
        let note = [&[state as u8][..], error.as_bytes()].concat();
        // Every VM comes here; the first one logs.
        if state != ConfigState::Ok && host::shared(&key).0 != note {
            log::error!("configuration refused; {}: {error}", fallback(state));
        }
        host::share(&key, &note, None);
        self.running = config.map(|(config, upstream)| {
            let plane = format!("{:016x}", settings::fingerprint(&config));
            let prefix = format!("{KEYS}{plane}.");
            let mut running = Running {
                watch: Watch::new(upstream, &prefix),
                worker: Rc::new(RefCell::new(Worker::new(config, self.me))),
                fleet: Fleet::new(),
                seen: None,
                plane,
                prefix,
                leads: false,
            };
            running.start();
            running
        });
    }

    /// The state of the newest configuration, which another root may have refused.
    fn config_state(plugin: &str) -> (ConfigState, String) {
        let (note, _) = host::shared(&format!("{KEYS}config.state.{plugin}"));
        let Some((state, error)) = note.split_first() else {
            return (ConfigState::Unspecified, String::new());
        };
        let state = ConfigState::try_from(i32::from(*state)).unwrap_or_default();
        (state, String::from_utf8_lossy(error).into_owned())
    }
}

/// What is in force in place of a refused configuration, in words.
const fn fallback(state: ConfigState) -> &'static str {
    match state {
        ConfigState::LastGood => "the last good one stays in force",
        ConfigState::Ok | ConfigState::PassThrough | ConfigState::Unspecified => {
            "there is no earlier one, requests pass untouched"
        }
    }
}

/// A configuration with the name of its control plane as Envoy takes it.
fn usable(config: Config) -> Result<(Config, String), String> {
    let plane = &config.control_plane;
    match grpc_service(&plane.cluster, &plane.authority) {
        Some(upstream) => Ok((config, upstream)),
        None => Err("control_plane: cluster and authority take 1..=127 bytes each".into()),
    }
}

impl Running {
    /// The first request finds a snapshot, if this process has any.
    fn start(&mut self) {
        let worker = Rc::clone(&self.worker);
        if let Ok(mut worker) = worker.try_borrow_mut() {
            let now = host::now();
            self.read_snapshot(now, &mut worker);
            if self.seen.is_none()
                && let Some((written, bytes)) = Watch::read_any()
            {
                self.apply(written, &bytes, now, &mut worker);
            }
        }
    }

    fn tick(&mut self, me: u64, plugin: &str) {
        let worker = Rc::clone(&self.worker);
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        let worker = &mut *worker;
        let now = host::now();
        self.read_snapshot(now, worker);
        self.exchange(me, now, worker);
        worker.gate.on_tick(now);
        if self.lease(me, now) {
            self.lead(now, worker, plugin);
        } else {
            self.watch.follow(&mut worker.stats);
        }
    }

    fn read_snapshot(&mut self, now: Time, worker: &mut Worker) {
        let Some((written, bytes, version)) = self.watch.read(self.seen) else { return };
        self.seen = version;
        self.apply(written, &bytes, now, worker);
    }

    fn apply(&mut self, written: Time, bytes: &[u8], now: Time, worker: &mut Worker) {
        let applied = match wire::update(bytes) {
            Ok(update) => self.fleet.apply(written, update).map_err(|error| error.as_str()),
            Err(error) => Err(error.as_str()),
        };
        match applied {
            Ok(()) => worker.gate.on_snapshot(now, &self.fleet),
            Err(reason) => worker.stats.count(Metric::DecodeErrors, None, reason),
        }
    }

    /// Reads the other workers' counters and writes this worker's, once it has any.
    fn exchange(&self, me: u64, now: Time, worker: &mut Worker) {
        let key = |slot: usize| format!("{}worker.{slot}", self.prefix);
        let count_key = format!("{}workers", self.prefix);
        let (count, count_version) = host::shared(&count_key);
        let count = count.first().map_or(0, |count| usize::from(*count)).min(SLOTS);
        let (mut cards, mut versions, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        for slot in 0..count {
            let (value, version) = host::shared(&key(slot));
            let card = Card::split(&value);
            if let Some((card, counts)) = card
                && card.owner != me
                && card.is_fresh(now)
            {
                peers.extend(wire::counts(card.owner, card.at, counts));
            }
            cards.push(card.map(|(card, _)| card));
            versions.push(version);
        }
        worker.gate.on_peers(now, peers);
        let counts = worker.gate.counts(now);
        if counts.services.is_empty() {
            return;
        }
        let value = Card { owner: me, at: now }.before(&wire::counts_bytes(&counts));
        match place(&cards, me, now) {
            Place::Mine(slot) | Place::Take(slot) => {
                host::share(&key(slot), &value, versions.get(slot).copied().flatten());
            }
            Place::Append => {
                let more = u8::try_from(count + 1).unwrap_or(u8::MAX);
                host::share(&key(count), &value, None);
                host::share(&count_key, &[more], count_version);
            }
            Place::Full => {}
        }
    }

    /// Whether this VM leads now.
    fn lease(&mut self, me: u64, now: Time) -> bool {
        let key = format!("{}lease", self.prefix);
        let (held, version) = host::shared(&key);
        let (leads, write) = match lease::step(Lease::from_bytes(&held), me, now) {
            Step::Follow => (false, None),
            Step::Lead => (true, None),
            Step::Renew(lease) => (true, Some(lease)),
            Step::Claim(lease) => (false, Some(lease)),
        };
        let is_written = write.is_none_or(|lease| host::share(&key, &lease.to_bytes(), version));
        self.leads = leads && is_written;
        self.leads
    }

    fn resign(&mut self) {
        if let Ok(mut worker) = self.worker.try_borrow_mut() {
            self.watch.follow(&mut worker.stats);
        }
        if core::mem::take(&mut self.leads) {
            host::share(&format!("{}lease", self.prefix), &[], None);
        }
    }

    fn lead(&mut self, now: Time, worker: &mut Worker, plugin: &str) {
        let Worker { config, gate, chance, stats, .. } = worker;
        let plane = &self.plane;
        let hello = || {
            let (state, error) = Root::config_state(plugin);
            let services = config.services.iter().map(|s| s.name.clone()).collect();
            wire::hello_bytes(proxy_id(plane), services, state, error)
        };
        let feedback = |sequence| {
            let (state, error) = Root::config_state(plugin);
            wire::feedback_bytes(sequence, &gate.feedback(now), state, error)
        };
        self.watch.lead(now, chance, stats, hello, feedback);
        stats.set(Metric::StreamState, None, self.watch.state());
        if let Some(age) = self.fleet.age(now) {
            stats.set(Metric::SnapshotAge, None, age.as_ms());
        }
        for (index, (_, rung)) in gate.rungs().enumerate() {
            stats.set(Metric::Rung, Worker::label(config, index), rung.number().into());
        }
    }
}

/// Unique for this Envoy process and what it wants: node id, a part drawn once, and the fingerprint.
fn proxy_id(plane: &str) -> String {
    let key = format!("{KEYS}proxy");
    let (drawn, _) = host::shared(&key);
    let drawn = match <[u8; 8]>::try_from(drawn) {
        Ok(drawn) => drawn,
        Err(_) => {
            let drawn = Chance::seeded(host::entropy()).bits().to_le_bytes();
            host::share(&key, &drawn, None);
            drawn
        }
    };
    let node = host::property(&["xds", "node", "id"]).unwrap_or_default();
    let mut node = String::from_utf8_lossy(&node).into_owned();
    node.truncate(node.floor_char_boundary(NODE_ID_BYTES_MAX));
    format!("{node}/{:016x}/{plane}", u64::from_le_bytes(drawn))
}

impl Context for Root {
    /// The plugin was replaced: another VM may lead at once.
    fn on_done(&mut self) -> bool {
        if let Some(running) = &mut self.running {
            running.resign();
        }
        true
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        if let Some(running) = &mut self.running
            && let Ok(mut worker) = running.worker.try_borrow_mut()
        {
            running.watch.receive(token, size, host::now(), &mut worker.stats);
        }
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        if let Some(running) = &mut self.running
            && let Ok(mut worker) = running.worker.try_borrow_mut()
        {
            let Worker { chance, stats, .. } = &mut *worker;
            running.watch.closed(token, status, host::now(), chance, stats);
        }
    }
}

impl RootContext for Root {
    /// Never false: Envoy would answer every request with 500.
    fn on_configure(&mut self, size: usize) -> bool {
        let bytes = host::configuration(size.min(settings::SETTINGS_BYTES_MAX + 1));
        self.configure(&bytes);
        host::tick_every(TICK);
        true
    }

    fn on_tick(&mut self) {
        if let Some(running) = &mut self.running {
            running.tick(self.me, &self.plugin);
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        let worker = self.running.as_ref().map(|running| Rc::clone(&running.worker));
        Some(Box::new(Request::new(worker)))
    }
}
