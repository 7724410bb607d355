//! The demo: the same load at the same time on GPUs behind Envoy with Tidegate and on a second, identical set behind
//! Envoy as a mesh has it, while things go wrong on both.
//!
//! Load, work and GPUs are those of the `tail` bench at 0.65 of what the fleet can do, which a fleet with room for a spike
//! runs at. The GPU that gets the Xid is one of the slower type, and what it does to the engine is in [`Side::break_gpu`]:
//! no balancer can save the answers that run there at that moment, so the side loses more that had more of them on it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::{Value, json};
use tidegate_tests::{Bootstrap, Tools};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::arrivals::Shape;
use crate::demo::side::{Side, shares};
use crate::demo::timeline::{Event, spike};
use crate::demo::view::{Frame, GpuLine, Screen, sides_table};
use crate::form::rounded;
use crate::open::Sample;
use crate::plain::{self, Balance, Guard, Host, Pool};
use crate::stand::{self, Brain, Gpu};

pub mod real_model;
pub mod side;
pub mod timeline;
pub mod view;

const LOAD: f64 = 0.65;
const SEED: u64 = 20;
const TICK: Duration = Duration::from_millis(250);
/// Shares on the screen are of the answers to requests of this last while.
const RECENT: Duration = Duration::from_secs(8);
/// Places in [`stand::fleet`].
const XID_GPU: usize = 5;
const THROTTLED_GPU: usize = 1;
const THROTTLED_C: u64 = 92;
const THROTTLED_RATIO: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub seconds: u64,
    pub json: bool,
    pub keep: bool,
    pub sidecars: u16,
}

/// Runs the demo to its end and prints what came of it. Dropping the future ends every process.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let tools = Tools::find();
    tools.check()?;
    let screen = Screen::new(options.json);
    screen.say(&format!(
        "Starting 8 simulated GPUs on 2 nodes for each side, 2 reporters, the control plane, {0} Envoys with Tidegate and {0} without",
        options.sidecars
    ));
    let mut demo = Demo::start(&tools, options, screen).await?;
    demo.play().await?;
    let result = demo.result().await?;
    if options.json {
        println!("{result}");
    } else {
        demo.print_end(&result);
    }
    if options.keep {
        demo.print_urls();
        std::future::pending::<()>().await;
    }
    Ok(())
}

struct Demo {
    run: Duration,
    rate_per_s: f64,
    gpus: Vec<Gpu>,
    /// Addresses of the second set, in the same order.
    twins: Vec<Gpu>,
    brain: Brain,
    tidegate: Side,
    envoy: Side,
    screen: Screen,
    happened: Vec<(Event, u64)>,
    xid_unix_ms: Option<u64>,
}

impl Demo {
    async fn start(tools: &Tools, options: Options, screen: Screen) -> anyhow::Result<Self> {
        let dir = tools.work_dir.join("demo");
        // Logs of an earlier run would be appended to.
        let _ = std::fs::remove_dir_all(&dir);
        let (gpus, twins) = (stand::fleet(), stand::fleet());
        let dirs = [dir.join("tidegate"), dir.join("envoy")];
        let (tidegate, envoy) = tokio::try_join!(
            start_tidegate(tools, &dirs[0], &gpus, options.sidecars),
            start_envoy(tools, &dirs[1], &twins, options.sidecars),
        )?;
        let (brain, tidegate) = tidegate;
        Ok(Self {
            run: Duration::from_secs(options.seconds),
            rate_per_s: LOAD * stand::capacity_per_s(&gpus),
            gpus,
            twins,
            brain,
            tidegate,
            envoy,
            screen,
            happened: Vec::new(),
            xid_unix_ms: None,
        })
    }

    /// From the first arrival to the last answer.
    async fn play(&mut self) -> anyhow::Result<()> {
        let shape = Shape {
            seed: SEED,
            seconds: self.run.as_secs_f64(),
            rate_per_s: self.rate_per_s,
            surges: vec![spike(self.run)],
            work_mean_ms: stand::WORK_MEAN_MS,
            work_sigma: stand::WORK_SIGMA,
            proxies: u16::try_from(self.tidegate.envoys.len())?,
        };
        let plan = Arc::new(shape.plan());
        let start = Instant::now() + TICK;
        let loads = [self.tidegate.load(Arc::clone(&plan), start), self.envoy.load(plan, start)];
        let mut ticks = tokio::time::interval_at(start, TICK);
        while !loads.iter().all(JoinHandle::is_finished) {
            ticks.tick().await;
            let elapsed = start.elapsed();
            let due = Event::ALL.into_iter().find(|event| {
                event.at(self.run) <= elapsed
                    && !self.happened.iter().any(|(done, _)| done == event)
            });
            if let Some(event) = due {
                self.happened.push((event, elapsed.as_millis() as u64));
                self.screen.tell(elapsed, event.said());
                self.act(event).await.with_context(|| event.name())?;
            }
            let frame = self.frame(elapsed).await;
            self.screen.show(&frame);
        }
        for load in loads {
            load.await?;
        }
        Ok(())
    }

    async fn act(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            // In the plan of arrivals.
            Event::Spike | Event::SpikeEnds => Ok(()),
            Event::Xid79 => {
                let (gpu, twin) = (&self.gpus[XID_GPU], self.twins[XID_GPU].address);
                let driver = &mut self.brain.node(gpu.node).context("no such node")?.scenario;
                self.xid_unix_ms = Some(unix_ms());
                driver.xid(gpu.index, 79)?;
                tokio::try_join!(self.tidegate.break_gpu(gpu.address), self.envoy.break_gpu(twin))?;
                driver.lost(gpu.index)
            }
            Event::Throttle => {
                let gpu = self.gpus[THROTTLED_GPU].clone();
                let driver = &mut self.brain.node(gpu.node).context("no such node")?.scenario;
                driver.throttle(gpu.index, THROTTLED_RATIO)?;
                self.slow_down(json!({"speed": THROTTLED_RATIO, "temperature_c": THROTTLED_C}))
                    .await
            }
            Event::ThrottleEnds => {
                let gpu = self.gpus[THROTTLED_GPU].clone();
                self.brain.node(gpu.node).context("no such node")?.scenario.recover(gpu.index)?;
                self.slow_down(json!({"speed": 1.0, "temperature_c": -1})).await
            }
            Event::ControlPlaneKilled => {
                self.brain.control_plane.kill();
                Ok(())
            }
            Event::ControlPlaneBack => self.brain.control_plane.restart().await,
        }
    }

    async fn slow_down(&self, order: Value) -> anyhow::Result<()> {
        tokio::try_join!(
            self.tidegate.models.order(self.gpus[THROTTLED_GPU].address, order.clone()),
            self.envoy.models.order(self.twins[THROTTLED_GPU].address, order),
        )?;
        Ok(())
    }

    async fn frame(&self, elapsed: Duration) -> Frame {
        let samples = [self.tidegate.record.samples(), self.envoy.record.samples()];
        let recent = samples.each_ref().map(|samples| {
            shares(samples.iter().filter(|sample| sample.at + sample.total + RECENT >= elapsed))
        });
        // Killed for a while: then the screen shows what is known without it.
        let fleet = self.brain.control_plane.api("/api/fleet").await.unwrap_or(Value::Null);
        let loads: HashMap<&str, Value> = self
            .brain
            .reporters
            .iter()
            .map(|reporter| (reporter.node.as_str(), read_json(&reporter.scenario.load_file())))
            .collect();
        let gpus = self
            .gpus
            .iter()
            .zip(&self.twins)
            .map(|(gpu, twin)| {
                let load =
                    &loads.get(gpu.node).unwrap_or(&Value::Null)["gpus"][gpu.index.to_string()];
                let known = endpoint(&fleet, gpu.address);
                GpuLine {
                    name: gpu.name(),
                    kind: kind(gpu),
                    load_ratio: load["utilization"].as_f64().map(|percent| percent / 100.0),
                    temperature_c: load["temperature_c"].as_f64(),
                    weight: known.and_then(|known| known["weight"].as_f64()),
                    note: known.map(note).unwrap_or_default(),
                    share_tidegate: share(&recent[0], gpu.address),
                    share_envoy: share(&recent[1], twin.address),
                }
            })
            .collect();
        Frame {
            elapsed,
            run: self.run,
            rate_per_s: self.rate_per_s,
            gpus,
            sides: vec![self.tidegate.line(&samples[0]), self.envoy.line(&samples[1])],
            happened: self.happened.iter().map(|(event, _)| *event).collect(),
        }
    }

    /// The final object.
    async fn result(&self) -> anyhow::Result<Value> {
        let (tidegate, envoy) = (self.tidegate.record.samples(), self.envoy.record.samples());
        let last_request_after_ms = match self.xid_unix_ms {
            Some(event_ms) => {
                let ledger = self.tidegate.models.ledger(self.gpus[XID_GPU].address).await?;
                Some(
                    ledger
                        .last_request_unix_ms
                        .map_or(0, |last_ms| last_ms.saturating_sub(event_ms)),
                )
            }
            None => None,
        };
        let events: Vec<Value> = self
            .happened
            .iter()
            .map(|(event, at_ms)| {
                let after_ms = last_request_after_ms.filter(|_| *event == Event::Xid79);
                json!({"name": event.name(), "at_ms": at_ms, "last_request_to_faulty_after_ms": after_ms})
            })
            .collect();
        let all = shares(tidegate.iter());
        let ratios: serde_json::Map<String, Value> = self
            .gpus
            .iter()
            .map(|gpu| (gpu.name(), json!(rounded(share(&all, gpu.address).unwrap_or(0.0)))))
            .collect();
        Ok(json!({
            "tidegate": side_json(&self.tidegate, &tidegate),
            "envoy_least_request": side_json(&self.envoy, &envoy),
            "events": events,
            "shares": ratios,
        }))
    }

    fn print_end(&self, result: &Value) {
        let sides = [&self.tidegate, &self.envoy].map(|side| side.line(&side.record.samples()));
        println!("\n{}\n", sides_table(&sides));
        for event in result["events"].as_array().into_iter().flatten() {
            if let Some(after_ms) = event["last_request_to_faulty_after_ms"].as_u64() {
                println!(
                    "Tidegate's last request to the GPU with the Xid: {after_ms} ms after it."
                );
            }
        }
        println!("{}", WHAT_ENVOY_HAS);
    }

    fn print_urls(&self) {
        let (with, without) = (&self.tidegate.envoys[0], &self.envoy.envoys[0]);
        let admin = self.brain.control_plane.admin;
        println!(
            "\nEverything stays up until Ctrl-C.\n\
             \n  Envoy with Tidegate     http://{}   admin http://{}\
             \n  Envoy without           http://{}   admin http://{}\
             \n  control plane           http://{admin}\n\
             \n  curl -N http://{}/v1/chat/completions -d '{{\"stream\":true,\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}'\
             \n  curl -s http://{}/stats | grep tidegate_\
             \n  tidegate status --admin http://{admin}\
             \n  tidegate explain {} --admin http://{admin}",
            with.address,
            with.admin,
            without.address,
            without.admin,
            with.address,
            with.admin,
            self.gpus[0].address,
        );
    }
}

pub const WHAT_ENVOY_HAS: &str = "\
The other side is what an Istio mesh has: least_request over two choices, outlier detection (5 consecutive
5xx, ejected for 30 s, 10 % of the hosts but at least one), 2 retries on every 5xx and reset that avoid the hosts
already tried (Istio's own default retries 503 only). Same arrivals, same work, an identical set of GPUs.";

async fn start_tidegate(
    tools: &Tools,
    dir: &Path,
    gpus: &[Gpu],
    sidecars: u16,
) -> anyhow::Result<(Brain, Side)> {
    let (brain, models) = stand::informed_fleet(tools, dir, gpus, stand::DEFAULT_PACE).await?;
    let bootstrap = brain.bootstrap(tools, gpus, "li_slots")?;
    let side = Side::start(tools, dir, "Tidegate", models, &bootstrap, sidecars).await?;
    stand::informed(&side.envoys, Duration::from_secs(20)).await?;
    Ok((brain, side))
}

async fn start_envoy(
    tools: &Tools,
    dir: &Path,
    gpus: &[Gpu],
    sidecars: u16,
) -> anyhow::Result<Side> {
    let models = stand::models(tools, dir, gpus, |_| None).await?;
    let pool = Pool {
        name: stand::SERVICE.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        balance: Balance::LeastRequest,
        guard: Guard::Mesh,
        hosts: gpus.iter().map(|gpu| Host { address: gpu.address, weight: 1 }).collect(),
    };
    let bootstrap = Bootstrap { page: plain::bootstrap(([127, 0, 0, 1], 0).into(), &[pool]) };
    Side::start(tools, dir, "Envoy least_request", models, &bootstrap, sidecars).await
}

fn side_json(side: &Side, samples: &[Sample]) -> Value {
    let line = side.line(samples);
    let shown = |number: Option<f64>| number.map(rounded);
    json!({
        "requests": line.requests,
        "success_ratio": line.success_ratio,
        "p50_ms": shown(line.p50_ms),
        "p99_ms": shown(line.p99_ms),
        "ttft_p99_ms": shown(line.ttft_p99_ms),
    })
}

fn kind(gpu: &Gpu) -> String {
    match gpu.profile {
        "a100-80gb" => "A100 80 GB".to_owned(),
        "v100-32gb" => "V100 32 GB".to_owned(),
        other => other.to_owned(),
    }
}

fn share(shares: &HashMap<SocketAddr, f64>, address: SocketAddr) -> Option<f64> {
    (!shares.is_empty()).then(|| shares.get(&address).copied().unwrap_or(0.0))
}

/// The entry of an address in the control plane's view.
fn endpoint(fleet: &Value, address: SocketAddr) -> Option<&Value> {
    let services = fleet["services"].as_array()?;
    let mut all = services.iter().filter_map(|service| service["endpoints"].as_array()).flatten();
    all.find(|endpoint| endpoint["address"].as_str() == Some(&address.to_string()))
}

/// Why an endpoint gets less or nothing.
fn note(endpoint: &Value) -> String {
    endpoint["gate_reason"].as_str().unwrap_or_default().to_owned()
}

fn read_json(path: &Path) -> Value {
    std::fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or(Value::Null)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}
