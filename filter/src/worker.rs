//! What a VM does between requests, and its share of what the VMs of one Envoy do together.
//!
//! A tick, in order: read the snapshot if it changed; exchange counters with the other workers; let the
//! gate move on; lead or follow in talking to the control plane.

use crate::host;
use crate::root::{KEYS, config_state};
use crate::settings;
use crate::stats::{Metric, Stats};
use crate::watch::Watch;
use crate::wire;
use std::cell::RefCell;
use std::rc::Rc;
use tidegate_policy::chance::Chance;
use tidegate_policy::config::{Config, ExistingList, ServiceConfig};
use tidegate_policy::gate::Gate;
use tidegate_policy::lease::{self, Lease, Step};
use tidegate_policy::slots::{Card, Place, SLOTS, place};
use tidegate_policy::snapshot::Fleet;
use tidegate_policy::units::Time;

/// Longest part of the proxy id that comes from Envoy's node id.
const NODE_ID_BYTES_MAX: usize = 128;

/// What the requests of a VM share.
pub(crate) struct Worker {
    pub(crate) config: Rc<Config>,
    pub(crate) gate: Gate,
    pub(crate) chance: Chance,
    pub(crate) stats: Stats,
    pub(crate) wants: Wants,
}

/// What any service looks at: the host is asked for nothing else, since each answer costs about 1 µs.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    pub(crate) cluster: bool,
    pub(crate) host: bool,
    pub(crate) path: bool,
    /// The list of an earlier picker.
    pub(crate) list: bool,
}

impl Wants {
    fn new(config: &Config) -> Self {
        let any = |wants: fn(&ServiceConfig) -> bool| config.services.iter().any(wants);
        Self {
            cluster: any(|service| !service.matcher.clusters.is_empty()),
            host: any(|service| !service.matcher.hosts.is_empty()),
            path: any(|service| !service.matcher.path_prefixes.is_empty()),
            list: any(|service| service.existing_list == ExistingList::Reorder),
        }
    }
}

impl Worker {
    fn new(config: Config, me: u64) -> Self {
        let config = Rc::new(config);
        Self {
            gate: Gate::new(host::now(), me, Rc::clone(&config)),
            chance: Chance::seeded(me),
            stats: Stats::default(),
            wants: Wants::new(&config),
            config,
        }
    }

    /// The metric label of a service.
    pub(crate) fn label(config: &Config, index: usize) -> Option<(u16, &str)> {
        Some((u16::try_from(index).ok()?, config.services.get(index)?.name.as_str()))
    }
}

/// A VM with a configuration in force.
pub(crate) struct Running {
    pub(crate) worker: Rc<RefCell<Worker>>,
    pub(crate) watch: Watch,
    fleet: Fleet,
    seen: host::Cas,
    /// Unique for this VM start, since shared data outlives a VM.
    me: u64,
    plugin: String,
    /// Fingerprint of what is wanted of the control plane, and the keys of its shared data.
    plane: String,
    prefix: String,
    leads: bool,
}

impl Running {
    pub(crate) fn new(me: u64, plugin: String, config: Config, upstream: String) -> Self {
        let plane = format!("{:016x}", settings::fingerprint(&config));
        let prefix = format!("{KEYS}{plane}.");
        let mut running = Self {
            worker: Rc::new(RefCell::new(Worker::new(config, me))),
            watch: Watch::new(upstream, &prefix),
            fleet: Fleet::new(),
            seen: None,
            me,
            plugin,
            plane,
            prefix,
            leads: false,
        };
        running.start();
        running
    }

    /// The first request finds a snapshot, if this process has any.
    fn start(&mut self) {
        let worker = Rc::clone(&self.worker);
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        let now = host::now();
        self.read_snapshot(now, &mut worker);
        if self.seen.is_none()
            && let Some((written, bytes)) = Watch::read_any()
        {
            self.apply(written, &bytes, now, &mut worker);
        }
    }

    pub(crate) fn tick(&mut self) {
        let worker = Rc::clone(&self.worker);
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        let now = host::now();
        self.read_snapshot(now, &mut worker);
        self.exchange(now, &mut worker);
        worker.gate.on_tick(now);
        self.leads = self.lease(now);
        if self.leads {
            self.lead(now, &mut worker);
        } else {
            self.watch.follow(&mut worker.stats);
        }
    }

    fn read_snapshot(&mut self, now: Time, worker: &mut Worker) {
        if let Some((written, bytes, version)) = self.watch.read(self.seen) {
            self.seen = version;
            self.apply(written, &bytes, now, worker);
        }
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

    /// Reads the other workers' counters and writes this worker's.
    fn exchange(&self, now: Time, worker: &mut Worker) {
        let key = |slot: usize| format!("{}worker.{slot}", self.prefix);
        let count_key = format!("{}workers", self.prefix);
        let (count, count_version) = host::shared(&count_key);
        let count = count.first().map_or(0, |count| usize::from(*count)).min(SLOTS);
        let (mut cards, mut versions, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        // Only who leads tells totals. A new leader has no stream at its first tick, so it says nothing
        // before it has read them.
        let read = if self.leads { wire::counts } else { wire::loads };
        for slot in 0..count {
            let (value, version) = host::shared(&key(slot));
            let card = Card::split(&value);
            if let Some((card, counts)) = card
                && card.owner != self.me
                && card.is_fresh(now)
            {
                peers.extend(read(card.owner, card.at, counts));
            }
            cards.push(card.map(|(card, _)| card));
            versions.push(version);
        }
        worker.gate.on_peers(now, peers);
        let counts = wire::counts_bytes(&worker.gate.counts(now));
        let value = Card { owner: self.me, at: now }.before(&counts);
        match place(&cards, self.me, now) {
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
    fn lease(&self, now: Time) -> bool {
        let key = format!("{}lease", self.prefix);
        let (held, version) = host::shared(&key);
        let write = |lease: Lease| host::share(&key, &lease.to_bytes(), version);
        match lease::step(Lease::from_bytes(&held), self.me, now) {
            Step::Follow => false,
            Step::Lead => true,
            Step::Renew(lease) => write(lease),
            Step::Claim(lease) => {
                write(lease);
                false
            }
        }
    }

    fn lead(&mut self, now: Time, worker: &mut Worker) {
        let Worker { config, gate, chance, stats, .. } = worker;
        let (plane, plugin) = (&self.plane, &self.plugin);
        let hello = || {
            let (state, error) = config_state(plugin);
            let services = config.services.iter().map(|s| s.name.clone()).collect();
            wire::hello_bytes(proxy_id(plane), services, state, error)
        };
        let feedback = |sequence| {
            let (state, error) = config_state(plugin);
            wire::feedback_bytes(sequence, &gate.feedback(now), state, error)
        };
        self.watch.lead(now, chance, stats, hello, feedback);
        // These describe the process, so the leader alone writes them.
        stats.set(Metric::StreamState, None, self.watch.state());
        if let Some(age) = self.fleet.age(now) {
            stats.set(Metric::SnapshotAge, None, age.as_ms());
        }
        for (index, (_, rung)) in gate.rungs().enumerate() {
            stats.set(Metric::Rung, Worker::label(config, index), rung.number().into());
        }
    }

    /// Gives the stream and the lease up.
    pub(crate) fn resign(&mut self) {
        if let Ok(mut worker) = self.worker.try_borrow_mut() {
            self.watch.follow(&mut worker.stats);
        }
        if core::mem::take(&mut self.leads) {
            host::share(&format!("{}lease", self.prefix), &[], None);
        }
    }
}

/// Unique for this Envoy process and what it wants: node id, a part drawn once, and the fingerprint.
fn proxy_id(plane: &str) -> String {
    let key = format!("{KEYS}proxy");
    let drawn = <[u8; 8]>::try_from(host::shared(&key).0).unwrap_or_else(|_| {
        let drawn = Chance::seeded(host::entropy()).bits().to_le_bytes();
        host::share(&key, &drawn, None);
        drawn
    });
    let node = host::property(&["xds", "node", "id"]).unwrap_or_default();
    let mut node = String::from_utf8_lossy(&node).into_owned();
    node.truncate(node.floor_char_boundary(NODE_ID_BYTES_MAX));
    format!("{node}/{:016x}/{plane}", u64::from_le_bytes(drawn))
}
