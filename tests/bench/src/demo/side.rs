//! One side of the demo: its Envoys, its model servers, the load on it and what came of it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures::future::try_join_all;
use tidegate_tests::envoy::{Envoy, Listener};
use tidegate_tests::models::{Fault, Models};
use tidegate_tests::{Bootstrap, Tools};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::arrivals::Arrival;
use crate::demo::view::SideLine;
use crate::open::{self, PATIENCE, Record, Sample, Target};
use crate::quantile::Spread;

/// Tokens of an answer; the model servers hand them out in 16 events.
const TOKENS: u32 = 64;

#[derive(Debug)]
pub struct Side {
    pub name: &'static str,
    pub models: Models,
    pub envoys: Vec<Envoy>,
    pub record: Record,
}

impl Side {
    /// Starts `count` Envoys of one worker each, all with the same configuration.
    pub async fn start(
        tools: &Tools,
        dir: &Path,
        name: &'static str,
        models: Models,
        bootstrap: &Bootstrap,
        count: u16,
    ) -> anyhow::Result<Self> {
        let envoys = start_envoys(tools, dir, bootstrap, count).await?;
        Ok(Self { name, models, envoys, record: Record::default() })
    }

    /// Sends the plan from `start` on; the handle ends with the last answer.
    pub fn load(&self, plan: Arc<Vec<Arrival>>, start: Instant) -> JoinHandle<()> {
        let target = Target {
            listeners: self.envoys.iter().map(|envoy| envoy.address).collect(),
            host: "llm.example",
            tokens: TOKENS,
            patience: PATIENCE,
        };
        tokio::spawn(open::run(plan, target, start, self.record.clone()))
    }

    /// What an Xid 79 does to the engine on that GPU: running answers break off, and from then on the server, which
    /// itself still lives, answers every request with a 500 as fast as it can.
    pub async fn break_gpu(&self, gpu: SocketAddr) -> anyhow::Result<()> {
        self.models.fault(gpu, Fault::Refuse).await?;
        let then = serde_json::json!({"fault": Fault::Error500.as_str(), "after_ms": CUT_MS});
        self.models.order(gpu, then).await
    }

    pub fn line(&self, samples: &[Sample]) -> SideLine {
        summary(self.name, samples)
    }
}

/// As long as it takes to close the connections of a broken engine.
const CUT_MS: u64 = 20;

/// Envoys on free ports, started at the same time.
pub async fn start_envoys(
    tools: &Tools,
    dir: &Path,
    bootstrap: &Bootstrap,
    count: u16,
) -> anyhow::Result<Vec<Envoy>> {
    let names: Vec<String> = (0..count).map(|index| format!("envoy-{index:02}")).collect();
    try_join_all(
        names
            .iter()
            .map(|name| Envoy::start(tools, dir, name, bootstrap.clone(), 1, Listener::Static)),
    )
    .await
}

/// Times are of good answers only; those that failed are in the success ratio.
pub fn summary(name: &'static str, samples: &[Sample]) -> SideLine {
    let good: Vec<&Sample> = samples.iter().filter(|sample| sample.is_ok).collect();
    let total = Spread::of(good.iter().map(|sample| sample.total_ms()).collect());
    let first = Spread::of(good.iter().filter_map(|sample| sample.first_token_ms()).collect());
    SideLine {
        name,
        requests: samples.len(),
        success_ratio: (!samples.is_empty()).then(|| good.len() as f64 / samples.len() as f64),
        p50_ms: total.p50,
        p99_ms: total.p99,
        ttft_p99_ms: first.p99,
    }
}

/// Which share of the answers each address gave.
pub fn shares<'a>(samples: impl Iterator<Item = &'a Sample>) -> HashMap<SocketAddr, f64> {
    let mut counts: HashMap<SocketAddr, f64> = HashMap::new();
    for address in samples.filter_map(|sample| sample.served_by) {
        *counts.entry(address).or_default() += 1.0;
    }
    let all: f64 = counts.values().sum();
    counts.values_mut().for_each(|count| *count /= all);
    counts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(index: usize, total_ms: u64, is_ok: bool) -> Sample {
        let port = 8_000 + (index % 4) as u16;
        Sample {
            at: Duration::ZERO,
            index,
            total: Duration::from_millis(total_ms),
            first_token: Some(Duration::from_millis(total_ms / 2)),
            queue_ms: None,
            status: Some(if is_ok { 200 } else { 500 }),
            served_by: Some(([127, 0, 0, 1], port).into()),
            is_ok,
        }
    }

    #[test]
    fn failures_count_against_success_and_not_as_fast_answers() {
        let samples: Vec<Sample> = (0..4).map(|index| sample(index, 100, index != 0)).collect();
        let line = summary("x", &samples);
        assert_eq!((line.requests, line.success_ratio), (4, Some(0.75)));
        assert_eq!((line.p50_ms, line.ttft_p99_ms), (Some(100.0), Some(50.0)));
        let nothing = summary("x", &[]);
        assert_eq!((nothing.success_ratio, nothing.p50_ms), (None, None));
    }

    #[test]
    fn shares_add_up_to_one_over_those_that_answered() {
        let mut samples: Vec<Sample> = (0..8).map(|index| sample(index, 100, true)).collect();
        samples.push(Sample { served_by: None, ..sample(0, 1, false) });
        let shares = shares(samples.iter());
        assert_eq!(shares.len(), 4);
        assert!(shares.values().all(|share| (share - 0.25).abs() < 1e-9));
    }
}
