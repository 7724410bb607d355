//! What several tests share.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use tidegate_proto::v1::{FleetUpdate, HardState};
use tidegate_tests::bootstrap::LIST_PROBE;
use tidegate_tests::fake_control_plane::full_update;
use tidegate_tests::rig::Builder;
use tidegate_tests::{FakeControlPlane, GpuSpec, Reply, Rig, Tools, until};

/// Time for something that takes a push period or two.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A rig of `gpus` equal GPUs whose control plane is a fake one, which knows all of them.
pub(crate) async fn scripted(
    tools: &Tools,
    name: &str,
    gpus: usize,
    shape: impl FnOnce(Builder) -> Builder,
) -> anyhow::Result<(Rig, FakeControlPlane)> {
    let fake = FakeControlPlane::start().await?;
    let builder =
        Rig::builder(tools, name).gpus(gpus, GpuSpec::new("a100-80gb")).control_plane_at(fake.grpc);
    let rig = shape(builder).start().await?;
    fake.hold(full_update(1, "llm", &rig.models.addresses()));
    rig.steers().await?;
    workers_have_it(&rig).await?;
    Ok((rig, fake))
}

/// An update in which only these endpoints of `all` are up.
///
/// Epochs count on from 1 in steps of one each period: thousands apart are newer than any before.
pub(crate) fn only(turn: u64, all: &[SocketAddr], up: &[SocketAddr]) -> FleetUpdate {
    let mut update = full_update(turn * 1_000, "llm", all);
    for endpoint in update.services.iter_mut().flat_map(|service| &mut service.endpoints) {
        if !up.iter().any(|address| address.to_string() == endpoint.address) {
            endpoint.hard = HardState::Down.into();
            endpoint.gate_pm = 0;
        }
    }
    update
}

/// Makes an update the truth and waits until the filter has applied it.
pub(crate) async fn apply(
    rig: &Rig,
    fake: &FakeControlPlane,
    update: FleetUpdate,
) -> anyhow::Result<()> {
    let applied = async || -> anyhow::Result<f64> {
        Ok(rig.envoy().stats().await?.tidegate("tidegate_updates_total", &[]))
    };
    let before = applied().await?;
    fake.hold(update);
    // One more may have been under way.
    until(SOON, "the filter applies an update", async || Ok(applied().await? >= before + 2.0))
        .await?;
    // The watcher counts it; a worker reads it with its next tick.
    workers_have_it(rig).await
}

/// Every worker has ticked since: a few ticks are 300 ms.
async fn workers_have_it(rig: &Rig) -> anyhow::Result<()> {
    let ticks = Duration::from_millis(300);
    tidegate_tests::eventually::observe(ticks).await;
    ensure!(!rig.envoys.is_empty(), "no Envoy");
    Ok(())
}

/// What an upstream saw of a request: its headers by name.
pub(crate) struct Seen(Vec<(String, String)>);

impl Seen {
    pub(crate) fn of(reply: &Reply) -> anyhow::Result<Self> {
        let page = reply.json()?;
        Ok(Self(serde_json::from_value(page["headers"].clone()).context("no echo")?))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The list that the filter wrote, by the probe.
    pub(crate) fn list(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let list = self.get(LIST_PROBE).context("no list")?;
        list.split(',').map(|one| one.trim().parse().context("no address")).collect()
    }
}

/// The URL that echoes what reached the upstream.
pub(crate) fn echo(rig: &Rig) -> String {
    format!("http://{}/v1/echo", rig.envoy().address)
}

/// Milliseconds since 1970, as the ledger of the model servers counts.
pub(crate) fn unix_ms() -> u64 {
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// With a load running: waits until GPU `gpu` has had no request for two seconds, and gives how long
/// after `event_ms` its last one came.
pub(crate) async fn last_request_after(
    rig: &Rig,
    gpu: usize,
    event_ms: u64,
) -> anyhow::Result<u64> {
    let what = format!("GPU {gpu} gets no more requests");
    let last = tidegate_tests::eventually(2 * SOON, &what, async || {
        let ledger = rig.models.ledger(rig.gpu(gpu)).await?;
        let is_quiet = ledger.last_request_age_ms.is_some_and(|age_ms| age_ms > 2_000);
        Ok(ledger.last_request_unix_ms.filter(|_| is_quiet))
    })
    .await?;
    Ok(last.saturating_sub(event_ms))
}

/// A field of what the control plane says of GPU `gpu`'s endpoint.
pub(crate) async fn said(rig: &Rig, gpu: usize, field: &str) -> anyhow::Result<serde_json::Value> {
    let endpoint = rig.control_plane().endpoint(rig.gpu(gpu)).await?;
    Ok(endpoint.context("the control plane does not know the endpoint")?[field].clone())
}

/// Waits until the control plane holds fresh data of every GPU and the filters have it.
pub(crate) async fn settled(rig: &Rig) -> anyhow::Result<()> {
    for gpu in (0..rig.gpus.len()).filter(|gpu| rig.gpus[*gpu].is_reported) {
        if !rig.gpus[gpu].is_in_fleet {
            continue;
        }
        until(2 * SOON, "fresh data of every GPU", async || {
            Ok(said(rig, gpu, "age_ms").await?.as_u64().is_some_and(|age_ms| age_ms < 2_000))
        })
        .await?;
    }
    rig.steers().await?;
    workers_have_it(rig).await
}

/// Requests that the filters steered.
pub(crate) async fn steered(rig: &Rig) -> anyhow::Result<f64> {
    let stats = rig.envoy().stats().await?;
    Ok(stats.tidegate("tidegate_requests_total", &["decision=steered"]))
}

/// With a load running: waits until GPU `gpu` takes part in it.
pub(crate) async fn has_traffic(rig: &Rig, gpu: usize) -> anyhow::Result<()> {
    let before = rig.models.ledger(rig.gpu(gpu)).await?.started;
    until(SOON, "the GPU has traffic", async || {
        Ok(rig.models.ledger(rig.gpu(gpu)).await?.started >= before + 20)
    })
    .await
}
