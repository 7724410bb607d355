//! One run: requests, proxies, servers and the control plane, event by event.
//!
//! A request goes to the endpoint that its proxy picked, and after a failure to the next of its list while it
//! has retries. A balancer without a list picks anew for each retry. What fails fast answers after
//! [`FAIL_MS`] without taking a slot, what is down refuses after [`REFUSE_MS`].
//!
//! Before the first update a gate leaves requests to Envoy's own balancer, which is least request here too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use tidegate_policy::{
    chance::Chance,
    config::Policy,
    decision::Ticket,
    gate::ServedFacts,
    snapshot::{Fleet, Update},
    units::{Span, Time},
};

use crate::{
    Nanos, SECOND,
    arrivals::{Arrival, generator, seeds},
    baseline::{Baseline, Rule},
    fault::{self, Fault, FaultKind},
    plane::{self, Facts, Plane, PlaneKind, Seen},
    server::{Job, Server, Spec},
    sidecar::{self, Arrived, Sidecar, Steering},
};

/// A broken server answers an error this fast.
pub const FAIL_MS: u64 = 5;
/// A connection is refused this fast.
pub const REFUSE_MS: u64 = 1;
/// The clock of gates starts here, as a clock does that has run for a while.
const START_MS: u64 = 1_000_000;
/// Updates that are kept for proxies that missed newer ones.
const UPDATES_KEPT: usize = 64;
const MS: Nanos = 1_000_000;

/// Who balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    /// The gate that ships, with one of its policies and a control plane.
    Gate {
        policy: Policy,
        plane: PlaneKind,
    },
    Baseline(Rule),
}

/// All that a run is made of, but its requests.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub contender: Contender,
    pub facts: Facts,
    pub retries: u8,
    /// From the sample to the proxies.
    pub delay: Span,
    /// Part of the updates that a proxy misses.
    pub loss: f64,
    /// Part of the requests that end in an error although all is well.
    pub error_rate: f64,
    pub faults: Vec<Fault>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Ok {
        took_s: f64,
    },
    Broken,
    /// Answered by the gate: nothing is up.
    Refused,
}

/// One try of a request at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    pub at: Nanos,
    pub request: usize,
    pub endpoint: usize,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// One for each request; `None` is a request that never ended.
    pub ends: Vec<Option<End>>,
    /// Ends of requests that had ended.
    pub ended_twice: u64,
    pub tries: Vec<Try>,
    /// Why endpoints were picked.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Requests that gates hold open when all is over.
    pub left_open: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next request of the plan.
    Arrive,
    /// A request ends at the server, unless the server has changed since.
    End {
        server: usize,
        change: u64,
    },
    /// The present try of the request has failed.
    Fail {
        request: usize,
    },
    Step,
    /// The oldest update on its way arrives.
    Receive,
    Crash {
        endpoint: usize,
    },
}

/// A request on its way.
#[derive(Debug)]
struct Open {
    list: Vec<usize>,
    nth: usize,
    ticket: Option<Ticket>,
}

enum Proxies {
    Gates { sidecars: Vec<Sidecar>, fallbacks: Vec<Baseline> },
    Baselines(Vec<Baseline>),
}

struct World<'a> {
    setup: &'a Setup,
    arrivals: &'a [Arrival],
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    made: u64,
    arrived: usize,
    over: usize,
    servers: Vec<Server>,
    changes: Vec<u64>,
    proxies: Proxies,
    plane: Option<Plane>,
    fleet: Fleet,
    on_the_way: VecDeque<Update>,
    updates: VecDeque<Arrived>,
    seen: Vec<Seen>,
    open: BTreeMap<usize, Open>,
    addresses: BTreeMap<String, usize>,
    errors: Chance,
    record: Record,
}

/// Runs `arrivals` through `setup` to the end of the last one.
#[must_use]
pub fn run(setup: &Setup, arrivals: &[Arrival]) -> Record {
    let mut world = World::new(setup, arrivals);
    while world.over < arrivals.len() {
        let Some(Reverse((now, _, event))) = world.events.pop() else { break };
        world.handle(now, event);
    }
    if let Proxies::Gates { sidecars, .. } = &world.proxies {
        world.record.left_open = sidecars.iter().map(Sidecar::open_requests).sum();
    }
    world.record
}

fn clock(now: Nanos) -> Time {
    Time::ms(START_MS + now / MS)
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, arrivals: &'a [Arrival]) -> Self {
        let specs = &setup.facts.specs;
        let weights: Vec<f64> = specs.iter().map(Spec::capacity).collect();
        let chances = || seeds(setup.seed).take(setup.facts.proxies as usize);
        let baselines = |rule| -> Vec<Baseline> {
            chances().map(|chance| Baseline::new(rule, chance, &weights)).collect()
        };
        let (proxies, plane) = match setup.contender {
            Contender::Baseline(rule) => (Proxies::Baselines(baselines(rule)), None),
            Contender::Gate { policy, plane } => {
                let config = sidecar::config(policy, setup.retries);
                let sidecar = |chance| Sidecar::new(clock(0), Rc::clone(&config), chance);
                let sidecars = chances().map(sidecar).collect();
                let fallbacks = baselines(Rule::LeastRequestLocal);
                let proxies = Proxies::Gates { sidecars, fallbacks };
                (proxies, Some(Plane::new(plane, setup.facts.clone())))
            }
        };
        let mut world = Self {
            setup,
            arrivals,
            events: BinaryHeap::new(),
            made: 0,
            arrived: 0,
            over: 0,
            servers: specs.iter().copied().map(Server::new).collect(),
            changes: vec![0; specs.len()],
            proxies,
            plane,
            fleet: Fleet::new(),
            on_the_way: VecDeque::new(),
            updates: VecDeque::new(),
            seen: vec![Seen::default(); specs.len()],
            open: BTreeMap::new(),
            addresses: (0..specs.len()).map(|i| (plane::address(i), i)).collect(),
            errors: generator(setup.seed, 2_500),
            record: Record { ends: vec![None; arrivals.len()], ..Record::default() },
        };
        if world.plane.is_some() {
            world.schedule(0, Event::Step);
        }
        for f in setup.faults.iter().filter(|f| f.kind == FaultKind::Down) {
            for endpoint in (0..specs.len()).filter(|i| f.endpoint.is_none_or(|at| at == *i)) {
                world.schedule(f.from(), Event::Crash { endpoint });
            }
        }
        if let Some(first) = arrivals.first() {
            world.schedule(first.at, Event::Arrive);
        }
        world
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.made, event)));
        self.made += 1;
    }

    fn holds(&self, kind: FaultKind, endpoint: usize, now: Nanos) -> bool {
        fault::holds(&self.setup.faults, kind, endpoint, now)
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Arrive => self.arrive(now),
            Event::End { server, change } if self.changes[server] == change => {
                let ended = self.servers[server].end_next(now);
                self.announce(server);
                if let Some(request) = ended {
                    self.answered(now, request);
                }
            }
            // The server runs something else by now.
            Event::End { .. } => {}
            Event::Fail { request } => self.failed(now, request),
            Event::Step => self.step(now),
            Event::Receive => self.receive(now),
            Event::Crash { endpoint } => {
                let lost = self.servers[endpoint].crash(now);
                self.announce(endpoint);
                lost.into_iter().for_each(|request| self.failed(now, request));
            }
        }
    }

    fn announce(&mut self, server: usize) {
        self.changes[server] += 1;
        if let Some(at) = self.servers[server].next_end() {
            self.schedule(at, Event::End { server, change: self.changes[server] });
        }
    }

    fn arrive(&mut self, now: Nanos) {
        let request = self.arrived;
        self.arrived += 1;
        if let Some(next) = self.arrivals.get(self.arrived) {
            self.schedule(next.at, Event::Arrive);
        }
        let proxy = self.arrivals[request].proxy;
        let tries = usize::from(self.setup.retries) + 1;
        let picks = |baseline: &mut Baseline| (0..tries).map(|_| baseline.pick()).collect();
        let newest = self.newest(proxy);
        let (list, ticket) = match &mut self.proxies {
            Proxies::Baselines(all) => (picks(&mut all[proxy]), None),
            Proxies::Gates { sidecars, fallbacks } => {
                let sidecar = &mut sidecars[proxy];
                sidecar.catch_up(clock(now), newest.as_ref());
                match sidecar.steer(clock(now)) {
                    Steering::To { ticket, list, reason } => {
                        *self.record.reasons.entry(reason).or_default() += 1;
                        let known = |address| self.addresses.get(address).copied();
                        let list = list.split(',').filter_map(known).take(tries).collect();
                        (list, Some(ticket))
                    }
                    Steering::Left => (picks(&mut fallbacks[proxy]), None),
                    Steering::Answered => {
                        self.over(request, End::Refused);
                        return;
                    }
                }
            }
        };
        self.open.insert(request, Open { list, nth: 0, ticket });
        self.attempt(now, request);
    }

    /// The newest update that reached the proxy.
    fn newest(&self, proxy: usize) -> Option<Arrived> {
        let reached = |update: &&Arrived| {
            let stream = update.number.wrapping_mul(1_000_003).wrapping_add(proxy as u64);
            self.setup.loss <= 0.0
                || generator(self.setup.seed ^ 0x1055, stream).unit() >= self.setup.loss
        };
        self.updates.iter().rev().find(reached).cloned()
    }

    fn attempt(&mut self, now: Nanos, request: usize) {
        let Some(open) = self.open.get(&request) else { return };
        let (endpoint, proxy) = (open.list[open.nth], self.arrivals[request].proxy);
        if let (Proxies::Baselines(all) | Proxies::Gates { fallbacks: all, .. }, None) =
            (&mut self.proxies, open.ticket)
        {
            all[proxy].started(endpoint);
        }
        self.seen[endpoint].in_flight += 1;
        self.record.tries.push(Try { at: now, request, endpoint });
        if self.holds(FaultKind::Down, endpoint, now) {
            self.schedule(now + REFUSE_MS * MS, Event::Fail { request });
        } else if self.holds(FaultKind::FailsFast, endpoint, now) {
            self.schedule(now + FAIL_MS * MS, Event::Fail { request });
        } else {
            let work_s = self.arrivals[request].work_s;
            self.servers[endpoint].take(now, Job { request, work_s });
            self.announce(endpoint);
        }
    }

    fn answered(&mut self, now: Nanos, request: usize) {
        if self.setup.error_rate > 0.0 && self.errors.unit() < self.setup.error_rate {
            self.failed(now, request);
            return;
        }
        let endpoint = self.leave(request);
        self.seen[endpoint].ok_total += 1;
        self.finish(now, request, 200);
        let took_s = (now - self.arrivals[request].at) as f64 / SECOND;
        self.over(request, End::Ok { took_s });
    }

    fn failed(&mut self, now: Nanos, request: usize) {
        let endpoint = self.leave(request);
        self.seen[endpoint].broken_total += 1;
        let Some(open) = self.open.get_mut(&request) else { return };
        if open.nth + 1 < open.list.len() {
            open.nth += 1;
            self.attempt(now, request);
        } else {
            self.finish(now, request, 500);
            self.over(request, End::Broken);
        }
    }

    /// The present try is over; gives its endpoint.
    fn leave(&mut self, request: usize) -> usize {
        let (open, proxy) = (&self.open[&request], self.arrivals[request].proxy);
        let endpoint = open.list[open.nth];
        self.seen[endpoint].in_flight -= 1;
        if let (Proxies::Baselines(all) | Proxies::Gates { fallbacks: all, .. }, None) =
            (&mut self.proxies, open.ticket)
        {
            all[proxy].ended(endpoint);
        }
        endpoint
    }

    /// Tells the gate.
    fn finish(&mut self, now: Nanos, request: usize, status: u16) {
        let proxy = self.arrivals[request].proxy;
        let newest = self.newest(proxy);
        let Some(Open { list, nth, ticket: Some(ticket) }) = self.open.remove(&request) else {
            return;
        };
        if let Proxies::Gates { sidecars, .. } = &mut self.proxies {
            let address = plane::address(list[nth]);
            let served = ServedFacts { served: Some(&address), attempts: nth as u32 + 1 };
            sidecars[proxy].catch_up(clock(now), newest.as_ref());
            sidecars[proxy].end(clock(now), ticket, &served, status);
        }
    }

    fn over(&mut self, request: usize, end: End) {
        match self.record.ends[request].replace(end) {
            None => self.over += 1,
            Some(_) => self.record.ended_twice += 1,
        }
    }

    fn step(&mut self, now: Nanos) {
        for endpoint in 0..self.servers.len() {
            if self.holds(FaultKind::Silent, endpoint, now) {
                continue;
            }
            let boots = self.setup.faults.iter().filter(|f| {
                f.kind == FaultKind::Down
                    && f.endpoint.is_none_or(|at| at == endpoint)
                    && f.to() <= now
            });
            let (server, seen) = (&self.servers[endpoint], self.seen[endpoint]);
            self.seen[endpoint] = Seen {
                sampled: clock(now),
                running: server.running() as u32,
                waiting: server.waiting() as u32,
                is_down: self.holds(FaultKind::Down, endpoint, now),
                boots: boots.count() as u32,
                ..seen
            };
        }
        let Some(plane) = &mut self.plane else { return };
        let update = plane.step(clock(now), &self.seen, self.arrived as u64);
        if !self.setup.faults.iter().any(|f| f.kind == FaultKind::NoUpdates && f.holds(now)) {
            self.on_the_way.push_back(update);
            self.schedule(now + self.setup.delay.as_ms() * MS, Event::Receive);
        }
        self.schedule(now + self.setup.facts.period.as_ms() * MS, Event::Step);
    }

    fn receive(&mut self, now: Nanos) {
        let Some(update) = self.on_the_way.pop_front() else { return };
        let number = update.epoch;
        // Refused are updates that are wrong or old; neither is made here.
        if self.fleet.apply(clock(now), update).is_ok() {
            let fleet = Rc::new(self.fleet.clone());
            self.updates.push_back(Arrived { number, at: clock(now), fleet });
            if self.updates.len() > UPDATES_KEPT {
                self.updates.pop_front();
            }
        }
    }
}
