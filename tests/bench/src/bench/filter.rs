//! `bench filter`: what a request costs more with a filter in the way, in CPU time and in latency.
//!
//! | arm | in the one worker of its Envoy |
//! |---|---|
//! | `none` | the shipped configuration without the filter |
//! | `empty wasm` | a wasm module that does nothing: the price of the ABI |
//! | `tidegate` | the shipped configuration, steering by live reports of eight GPUs |
//! | `ext_proc` | the cheapest picker outside of Envoy (see `ext_proc`), asked for each request's headers |
//!
//! All arms have the same cluster, upstream and client. CPU time is that of Envoy and, for ext_proc, of the picker's process;
//! control plane and reporters are not counted, they do nothing per request. Arms take turns in rounds, what is added is
//! the difference to `none` in the same round, and the figures are medians over rounds: a disturbance that lasts for a
//! round meets all arms, one that lasts for a phase is outvoted.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tidegate_tests::envoy::Envoy;
use tidegate_tests::process::Process;
use tidegate_tests::{Bootstrap, Tools, ports, until};
use tokio::net::{TcpListener, TcpStream};

use crate::closed::{self, Pace, load};
use crate::cpu;
use crate::demo::side::start_envoys;
use crate::form::{Aim, Bound, Findings, Row};
use crate::quantile::{median, quantile};
use crate::stand::{self, Brain, Gpu};

const ROUNDS: usize = 11;
/// Of one phase of one arm in one round.
const DEFAULT_SECONDS: u64 = 2;
const CONNECTIONS: usize = 8;
const LOW_PER_S: f64 = 500.0;
const WARM_UP: Duration = Duration::from_millis(500);
const PICKER: &str = "picker";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Low,
    Saturation,
}

impl Phase {
    const ALL: [Self; 2] = [Self::Low, Self::Saturation];

    const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Saturation => "saturation",
        }
    }

    const fn pace(self) -> Pace {
        match self {
            Self::Low => Pace::PerSecond(LOW_PER_S),
            Self::Saturation => Pace::Full,
        }
    }
}

pub async fn run(seconds: Option<u64>) -> anyhow::Result<Findings> {
    let tools = Tools::find();
    tools.check()?;
    let span = Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS));
    let dir = tools.work_dir.join("filter-bench");
    let _ = std::fs::remove_dir_all(&dir);
    let gpus = stand::fleet();
    for gpu in &gpus {
        tokio::spawn(closed::serve(TcpListener::bind(gpu.address).await?));
    }
    let brain =
        Brain::start(&tools, &dir, &gpus, Brain::drivers(&dir)?, stand::DEFAULT_PACE).await?;
    let arms = start_arms(&tools, &dir, &gpus, &brain).await?;

    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        eprintln!("filter: round {} of {ROUNDS}", round + 1);
        for phase in Phase::ALL {
            // Another arm goes first each time.
            for turn in 0..arms.len() {
                let arm = &arms[(round + turn) % arms.len()];
                load(arm.envoy.address, CONNECTIONS, phase.pace(), WARM_UP).await?;
                taken.push(arm.measure(round, phase, span).await.with_context(|| arm.name)?);
            }
        }
    }
    Ok(findings(&taken))
}

struct Arm {
    name: &'static str,
    envoy: Envoy,
    picker: Option<Process>,
}

impl Arm {
    async fn measure(&self, round: usize, phase: Phase, span: Duration) -> anyhow::Result<Taken> {
        let before = self.cpu()?;
        let found = load(self.envoy.address, CONNECTIONS, phase.pace(), span).await?;
        let used = self.cpu()? - before;
        let requests = found.latencies_us.len() as f64;
        let mut sorted = found.latencies_us;
        sorted.sort_by(f64::total_cmp);
        Ok(Taken {
            arm: self.name,
            phase,
            round,
            cpu_us: used.as_secs_f64() * 1e6 / requests,
            p50_us: quantile(&sorted, 0.50).context("no request ended")?,
            p99_us: quantile(&sorted, 0.99).context("no request ended")?,
            per_s: requests / found.wall.as_secs_f64(),
        })
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        let picker =
            self.picker.as_ref().map_or(Ok(Duration::ZERO), |picker| cpu::used(picker.id()));
        Ok(cpu::used(self.envoy.process.id())? + picker?)
    }
}

async fn start_arms(
    tools: &Tools,
    dir: &Path,
    gpus: &[Gpu],
    brain: &Brain,
) -> anyhow::Result<Vec<Arm>> {
    let shipped = brain.bootstrap(tools, gpus, "li_slots")?;

    let mut none = shipped.clone();
    none.remove_filter()?;

    let mut empty = shipped.clone();
    let module = tools.wasm.with_file_name("tidegate_empty_filter.wasm");
    anyhow::ensure!(
        module.is_file(),
        "{} is missing: cargo build -p tidegate-empty-filter --profile wasm --target wasm32-wasip1",
        module.display()
    );
    let wasm = empty.wasm()?;
    wasm["vm_config"]["code"]["local"]["filename"] = json!(module);
    wasm["vm_config"]["vm_id"] = json!("empty");

    let listen = ports::free();
    let picker = start_picker(dir, listen, gpus).await?;
    let asking = with_ext_proc(&shipped, listen)?;

    let mut arms = Vec::new();
    let mut picker = Some(picker);
    for (name, bootstrap) in
        [("none", none), ("empty wasm", empty), ("tidegate", shipped), ("ext_proc", asking)]
    {
        let folder = dir.join(name.replace(' ', "-"));
        let envoy =
            start_envoys(tools, &folder, &bootstrap, 1).await?.pop().context("one Envoy")?;
        let picker = if name == "ext_proc" { picker.take() } else { None };
        arms.push(Arm { name, envoy, picker });
    }
    let steering = arms.iter().filter(|arm| arm.name == "tidegate").map(|arm| &arm.envoy);
    for envoy in steering {
        stand::informed(std::slice::from_ref(envoy), Duration::from_secs(20)).await?;
    }
    Ok(arms)
}

/// This program again, as the picker.
async fn start_picker(dir: &Path, listen: SocketAddr, gpus: &[Gpu]) -> anyhow::Result<Process> {
    let endpoints: Vec<String> = gpus.iter().map(|gpu| gpu.address.to_string()).collect();
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "ext-proc",
        "--listen",
        &listen.to_string(),
        "--endpoints",
        &endpoints.join(","),
    ]);
    let process = Process::spawn("picker", dir, command)?;
    until(Duration::from_secs(10), "the picker listens", async || {
        Ok(TcpStream::connect(listen).await.is_ok())
    })
    .await?;
    Ok(process)
}

/// The shipped configuration with ext_proc in place of the filter.
fn with_ext_proc(shipped: &Bootstrap, picker: SocketAddr) -> anyhow::Result<Bootstrap> {
    let mut bootstrap = shipped.clone();
    *bootstrap.filter()? = json!({
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": PICKER}},
            "processing_mode": {
                "request_header_mode": "SEND",
                "response_header_mode": "SKIP",
                "request_body_mode": "NONE",
                "response_body_mode": "NONE",
                "request_trailer_mode": "SKIP",
                "response_trailer_mode": "SKIP",
            },
            // Above any wait at saturation: what is measured is cost, not failure.
            "message_timeout": "5s",
        },
    });
    // It speaks HTTP/2 like the control plane, so its cluster is a copy of that one.
    let mut cluster = bootstrap.cluster("tidegate_control_plane")?.clone();
    cluster["name"] = json!(PICKER);
    cluster["load_assignment"]["cluster_name"] = json!(PICKER);
    let clusters = bootstrap.page["static_resources"]["clusters"].as_array_mut();
    clusters.context("no clusters")?.push(cluster);
    bootstrap.set_endpoints(PICKER, &[picker])?;
    Ok(bootstrap)
}

/// One arm in one phase of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Taken {
    arm: &'static str,
    phase: Phase,
    round: usize,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
    per_s: f64,
}

fn findings(taken: &[Taken]) -> Findings {
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        for arm in ["none", "empty wasm", "tidegate", "ext_proc"] {
            let of = |figure: fn(&Taken) -> f64| {
                let chosen = taken.iter().filter(|t| t.arm == arm && t.phase == phase);
                median(&chosen.map(figure).collect::<Vec<_>>())
            };
            rows.push(
                Row::new()
                    .with("load", phase.name())
                    .with("arm", arm)
                    .with("requests_per_s", of(|t| t.per_s))
                    .with("cpu_us", of(|t| t.cpu_us))
                    .with("cpu_us_added", added(taken, arm, phase, |t| t.cpu_us))
                    .with("p50_us", of(|t| t.p50_us))
                    .with("p50_us_added", added(taken, arm, phase, |t| t.p50_us))
                    .with("p99_us", of(|t| t.p99_us))
                    .with("p99_us_added", added(taken, arm, phase, |t| t.p99_us)),
            );
        }
    }
    let cpu_added = |arm| added(taken, arm, Phase::Saturation, |t| t.cpu_us);
    let (ours, theirs) = (cpu_added("tidegate"), cpu_added("ext_proc"));
    Findings {
        bench: "filter",
        rows,
        aims: vec![
            Aim::new(
                "CPU us that tidegate adds to a request at saturation",
                ours,
                Bound::AtMost,
                25.0,
            ),
            Aim::new(
                "of what ext_proc adds, at saturation",
                ours.zip(theirs).map(|(ours, theirs)| ours / theirs),
                Bound::AtMost,
                0.4,
            ),
        ],
    }
}

/// Median over rounds of the difference to `none` in the same round.
fn added(taken: &[Taken], arm: &str, phase: Phase, figure: fn(&Taken) -> f64) -> Option<f64> {
    let in_round = |arm: &str, round: usize| {
        taken.iter().find(|t| t.arm == arm && t.phase == phase && t.round == round).map(figure)
    };
    let differences: Vec<f64> = (0..ROUNDS)
        .filter_map(|round| Some(in_round(arm, round)? - in_round("none", round)?))
        .collect();
    median(&differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_is_the_median_of_differences_within_rounds() {
        let taken = |arm, round, cpu_us| Taken {
            arm,
            phase: Phase::Saturation,
            round,
            cpu_us,
            p50_us: 1.0,
            p99_us: 1.0,
            per_s: 1.0,
        };
        // Differences 20, 10 and 90 (a disturbed phase): the median is 20, whatever the base of the round.
        let all = [
            taken("none", 0, 60.0),
            taken("tidegate", 0, 80.0),
            taken("none", 1, 100.0),
            taken("tidegate", 1, 110.0),
            taken("none", 2, 60.0),
            taken("tidegate", 2, 150.0),
        ];
        assert_eq!(added(&all, "tidegate", Phase::Saturation, |t| t.cpu_us), Some(20.0));
        assert_eq!(added(&all, "tidegate", Phase::Low, |t| t.cpu_us), None);
        assert_eq!(added(&all, "ext_proc", Phase::Saturation, |t| t.cpu_us), None);
    }

    #[test]
    fn ext_proc_takes_the_filters_place_and_has_a_cluster() {
        let tools = Tools::find();
        let shipped = Bootstrap::shipped(&tools).expect("the shipped file");
        let mut asking =
            with_ext_proc(&shipped, ([127, 0, 0, 1], 7).into()).expect("a filter to replace");
        assert!(asking.filter().is_err());
        let cluster = asking.cluster(PICKER).expect("just added");
        assert!(cluster.to_string().contains("\"port_value\":7"), "{cluster}");
    }
}
