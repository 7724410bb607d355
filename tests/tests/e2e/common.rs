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
    let update = full_update(1, "llm", &rig.models.addresses());
    fake.greet(&update);
    fake.say(&update);
    rig.steers().await?;
    Ok((rig, fake))
}

/// An update in which only these endpoints of `all` are up.
pub(crate) fn only(epoch: u64, all: &[SocketAddr], up: &[SocketAddr]) -> FleetUpdate {
    let mut update = full_update(epoch, "llm", all);
    for endpoint in update.services.iter_mut().flat_map(|service| &mut service.endpoints) {
        if !up.iter().any(|address| address.to_string() == endpoint.address) {
            endpoint.hard = HardState::Down.into();
            endpoint.gate_pm = 0;
        }
    }
    update
}

/// Says an update and waits until the filter has applied it.
pub(crate) async fn apply(
    rig: &Rig,
    fake: &FakeControlPlane,
    update: &FleetUpdate,
) -> anyhow::Result<()> {
    let applied = async || -> anyhow::Result<f64> {
        Ok(rig.envoy().stats().await?.tidegate("tidegate_updates_total", &[]))
    };
    let before = applied().await?;
    fake.greet(update);
    fake.say(update);
    until(SOON, "the filter applies an update", async || Ok(applied().await? > before)).await?;
    // The watcher counts it; a worker reads it with its next tick or request.
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
