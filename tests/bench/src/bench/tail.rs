//! `bench tail`: latency of five ways to balance unlike GPUs, against a central queue over all of them.
//!
//! Each arm has an identical fleet of its own (see `stand`) and the same arrivals with the same work, computed once from a
//! seed; the ideal is computed from them as well. Arms of one stage run at the same time, so that whatever the machine
//! does meets all of them; `cpu_busy_ratio` says how busy it was, and where it nears 1 the figures say nothing.
//!
//! Stock Envoy's three policies share the Envoys of a stage, a listener and a cluster each: they have no state in common.
//! Each of Tidegate's two has Envoys, reporters and a control plane of its own.
//!
//! The first sixth of the requests fills the fleet and is not counted. A failed request counts with the client's
//! patience as its time, so that failing never looks fast. `round_robin` has no steady state here, its slow GPUs get more
//! than they can do: its figures grow with the length of the run.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_tests::envoy::Envoy;
use tidegate_tests::models::Models;
use tidegate_tests::{Bootstrap, Tools, ports};
use tokio::time::Instant;

use crate::arrivals::Shape;
use crate::cpu;
use crate::demo::side::start_envoys;
use crate::form::{Aim, Bound, Findings, Row};
use crate::ideal::{self, Served};
use crate::open::{self, PATIENCE, Record, Sample, Target};
use crate::plain::{self, Balance, Guard, Host, Pool};
use crate::quantile::Spread;
use crate::stand::{self, Brain, Gpu, Pace};

const LOADS: [f64; 2] = [0.7, 0.85];
const PROXIES: [u16; 2] = [1, 16];
const DEFAULT_SECONDS: u64 = 240;
const SEED: u64 = 1;
/// Events of an answer; few, since the machine is shared by all arms.
const TOKENS: u32 = 8;
/// Share of the run that only fills the fleet.
const WARM_UP: f64 = 1.0 / 6.0;
/// From the last Envoy's start to the first request.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    RoundRobin,
    LeastRequest,
    LeastRequestWeighted,
    FreeMemory,
    LiSlots,
}

impl Policy {
    const STOCK: [Self; 3] = [Self::RoundRobin, Self::LeastRequest, Self::LeastRequestWeighted];
    const OURS: [Self; 2] = [Self::FreeMemory, Self::LiSlots];

    const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::LeastRequestWeighted => "least_request with true weights",
            Self::FreeMemory => "free_memory",
            Self::LiSlots => "li_slots",
        }
    }

    /// In stock Envoy, of hosts whose weight is the speed of their GPU where the policy is told.
    fn hosts(self, gpus: &[Gpu]) -> Vec<Host> {
        let weight = |gpu: &Gpu| match self {
            Self::LeastRequestWeighted => (gpu.speed * 100.0).round() as u32,
            Self::RoundRobin | Self::LeastRequest | Self::FreeMemory | Self::LiSlots => 1,
        };
        gpus.iter().map(|gpu| Host { address: gpu.address, weight: weight(gpu) }).collect()
    }
}

/// Which part of the bench to run, and how often Tidegate's parts talk.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub seconds: Option<u64>,
    pub envoys: Option<u16>,
    pub load: Option<f64>,
    pub pace: Pace,
}

pub async fn run(choice: Choice) -> anyhow::Result<Findings> {
    let tools = Tools::find();
    tools.check()?;
    let seconds = choice.seconds.unwrap_or(DEFAULT_SECONDS);
    let mut results = Vec::new();
    for proxies in PROXIES.into_iter().filter(|n| choice.envoys.is_none_or(|only| only == *n)) {
        for load in LOADS.into_iter().filter(|l| choice.load.is_none_or(|only| only == *l)) {
            eprintln!("tail: {proxies} Envoys, load {load}, {seconds} s");
            let stage = Stage::start(&tools, proxies, load, choice.pace).await?;
            results.extend(stage.measure(seconds).await?);
        }
    }
    Ok(findings(&results))
}

/// One load on one number of proxies, all arms side by side.
struct Stage {
    proxies: u16,
    load: f64,
    arms: Vec<Arm>,
    /// Kept running until the stage ends.
    _brains: Vec<Brain>,
    _envoys: Vec<Envoy>,
}

struct Arm {
    policy: Policy,
    gpus: Vec<Gpu>,
    _models: Models,
    listeners: Vec<SocketAddr>,
}

impl Stage {
    async fn start(tools: &Tools, proxies: u16, load: f64, pace: Pace) -> anyhow::Result<Self> {
        let dir = tools.work_dir.join(format!("tail-{proxies}-{load}"));
        let _ = std::fs::remove_dir_all(&dir);
        let mut stage =
            Self { proxies, load, arms: Vec::new(), _brains: Vec::new(), _envoys: Vec::new() };
        stage.add_stock(tools, &dir).await?;
        for policy in Policy::OURS {
            stage.add_ours(tools, &dir.join(policy.name()), policy, pace).await?;
        }
        Ok(stage)
    }

    async fn add_stock(&mut self, tools: &Tools, dir: &Path) -> anyhow::Result<()> {
        let mut arms = Vec::new();
        for policy in Policy::STOCK {
            let gpus = stand::fleet();
            let models = stand::models(tools, &dir.join(policy.name()), &gpus, |_| None).await?;
            arms.push(Arm { policy, gpus, _models: models, listeners: Vec::new() });
        }
        for proxy in 0..self.proxies {
            let mut pools = Vec::new();
            for arm in &mut arms {
                let listen = ports::free();
                arm.listeners.push(listen);
                pools.push(Pool {
                    name: arm.policy.name().replace(' ', "_"),
                    listen,
                    balance: match arm.policy {
                        Policy::RoundRobin => Balance::RoundRobin,
                        _ => Balance::LeastRequest,
                    },
                    guard: Guard::Off,
                    hosts: arm.policy.hosts(&arm.gpus),
                });
            }
            // The harness places the first listener itself.
            let page = plain::bootstrap(ports::free(), &pools);
            let folder = dir.join(format!("stock-{proxy:02}"));
            let mut envoys = start_envoys(tools, &folder, &Bootstrap { page }, 1).await?;
            let envoy = envoys.pop().context("one Envoy was asked for")?;
            if let Some(first) = arms.first_mut().and_then(|arm| arm.listeners.last_mut()) {
                *first = envoy.address;
            }
            self._envoys.push(envoy);
        }
        self.arms.extend(arms);
        Ok(())
    }

    async fn add_ours(
        &mut self,
        tools: &Tools,
        dir: &Path,
        policy: Policy,
        pace: Pace,
    ) -> anyhow::Result<()> {
        let gpus = stand::fleet();
        let (brain, models) = stand::informed_fleet(tools, dir, &gpus, pace).await?;
        let bootstrap = brain.bootstrap(tools, &gpus, policy.name())?;
        let envoys = start_envoys(tools, dir, &bootstrap, self.proxies).await?;
        stand::informed(&envoys, Duration::from_secs(30)).await?;
        let listeners = envoys.iter().map(|envoy| envoy.address).collect();
        self.arms.push(Arm { policy, gpus, _models: models, listeners });
        self._brains.push(brain);
        self._envoys.extend(envoys);
        Ok(())
    }

    async fn measure(&self, seconds: u64) -> anyhow::Result<Vec<Measured>> {
        let gpus = &self.arms.first().context("no arm")?.gpus;
        let shape = Shape {
            seed: SEED,
            seconds: seconds as f64,
            rate_per_s: self.load * stand::capacity_per_s(gpus),
            surges: Vec::new(),
            work_mean_ms: stand::WORK_MEAN_MS,
            work_sigma: stand::WORK_SIGMA,
            proxies: self.proxies,
        };
        let plan = Arc::new(shape.plan());
        let models: Vec<ideal::Gpu> = gpus.iter().map(Gpu::model).collect();
        let best = ideal::central_queue(&models, &plan);
        let start = Instant::now() + SETTLE;
        let before = cpu::machine()?;
        let mut runs = Vec::new();
        for arm in &self.arms {
            let record = Record::default();
            let target = Target {
                listeners: arm.listeners.clone(),
                host: "llm.example",
                tokens: TOKENS,
                patience: PATIENCE,
            };
            let run = tokio::spawn(open::run(Arc::clone(&plan), target, start, record.clone()));
            runs.push((run, record));
        }
        tokio::time::sleep_until(start + Duration::from_secs(seconds)).await;
        let busy = cpu::busy_ratio(before, cpu::machine()?);
        let warm = (plan.len() as f64 * WARM_UP) as usize;
        let ideal = Figures::of_ideal(&best[warm..]);
        let mut all = vec![Measured::new("ideal (central queue)", self, None, ideal, ideal)];
        for ((run, record), arm) in runs.into_iter().zip(&self.arms) {
            run.await?;
            let samples: Vec<Sample> =
                record.samples().into_iter().filter(|sample| sample.index >= warm).collect();
            all.push(Measured::new(arm.policy.name(), self, busy, Figures::of(&samples), ideal));
        }
        Ok(all)
    }
}

/// What one arm, or the ideal, did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Figures {
    requests: usize,
    failed: usize,
    total: Spread,
    first_token: Spread,
    queue: Spread,
}

impl Figures {
    fn of(samples: &[Sample]) -> Self {
        let patience_ms = PATIENCE.as_secs_f64() * 1_000.0;
        let worst = |sample: &Sample, ms: Option<f64>| match sample.is_ok {
            true => ms.unwrap_or(patience_ms),
            false => patience_ms,
        };
        Self {
            requests: samples.len(),
            failed: samples.iter().filter(|sample| !sample.is_ok).count(),
            total: Spread::of(samples.iter().map(|s| worst(s, Some(s.total_ms()))).collect()),
            first_token: Spread::of(samples.iter().map(|s| worst(s, s.first_token_ms())).collect()),
            queue: Spread::of(samples.iter().map(|s| worst(s, s.queue_ms)).collect()),
        }
    }

    fn of_ideal(served: &[Served]) -> Self {
        let share = stand::first_token_share(TOKENS);
        Self {
            requests: served.len(),
            failed: 0,
            total: Spread::of(served.iter().map(Served::total_ms).collect()),
            first_token: Spread::of(
                served.iter().map(|s| s.wait_ms + s.service_ms * share).collect(),
            ),
            queue: Spread::of(served.iter().map(|s| s.wait_ms).collect()),
        }
    }
}

#[derive(Debug, Clone)]
struct Measured {
    policy: &'static str,
    proxies: u16,
    load: f64,
    busy: Option<f64>,
    figures: Figures,
    ideal: Figures,
}

impl Measured {
    fn new(
        policy: &'static str,
        stage: &Stage,
        busy: Option<f64>,
        figures: Figures,
        ideal: Figures,
    ) -> Self {
        Self { policy, proxies: stage.proxies, load: stage.load, busy, figures, ideal }
    }

    fn row(&self) -> Row {
        let (f, ideal) = (&self.figures, &self.ideal);
        Row::new()
            .with("envoys", u64::from(self.proxies))
            .with("load", self.load)
            .with("policy", self.policy)
            .with("requests", f.requests)
            .with("failed", f.failed)
            .with("p50_ms", f.total.p50)
            .with("p95_ms", f.total.p95)
            .with("p99_ms", f.total.p99)
            .with("p50_vs_ideal", ratio(f.total.p50, ideal.total.p50))
            .with("p95_vs_ideal", ratio(f.total.p95, ideal.total.p95))
            .with("p99_vs_ideal", ratio(f.total.p99, ideal.total.p99))
            .with("ttft_p50_ms", f.first_token.p50)
            .with("ttft_p99_ms", f.first_token.p99)
            .with("queue_p50_ms", f.queue.p50)
            .with("queue_p95_ms", f.queue.p95)
            .with("queue_p99_ms", f.queue.p99)
            .with("cpu_busy_ratio", self.busy)
    }
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

fn findings(results: &[Measured]) -> Findings {
    let at = |policy: &str| {
        results
            .iter()
            .find(|r| r.proxies == 16 && r.load == 0.85 && r.policy == policy)
            .map(|r| &r.figures)
    };
    let against = |figure: fn(&Figures) -> Option<f64>, a: &str, b: &str| {
        ratio(figure(at(a)?), figure(at(b)?))
    };
    let (ours, stock, ideal) =
        (Policy::LiSlots.name(), Policy::LeastRequest.name(), "ideal (central queue)");
    Findings {
        bench: "tail",
        rows: results.iter().map(Measured::row).collect(),
        aims: vec![
            Aim::new(
                "16 Envoys, load 0.85: li_slots P50 over ideal",
                against(|f| f.total.p50, ours, ideal),
                Bound::AtMost,
                1.25,
            ),
            Aim::new(
                "16 Envoys, load 0.85: li_slots P99 over ideal",
                against(|f| f.total.p99, ours, ideal),
                Bound::AtMost,
                1.12,
            ),
            Aim::new(
                "16 Envoys, load 0.85: least_request P95 over li_slots",
                against(|f| f.total.p95, stock, ours),
                Bound::AtLeast,
                1.7,
            ),
        ],
    }
}
