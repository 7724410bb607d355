//! A new configuration under load takes effect and costs no request; a bad one is refused with the
//! old one serving.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tidegate_tests::envoy::Listener;
use tidegate_tests::eventually::observe;
use tidegate_tests::{Rig, tools_or_skip, until};

use super::common::{SOON, scripted};

/// Waits until requests are decided that way, and no longer the other way.
async fn decides(rig: &Rig, decision: &str) -> anyhow::Result<()> {
    let label = format!("decision={decision}");
    let count = async || -> anyhow::Result<(f64, f64)> {
        let stats = rig.envoy().stats().await?;
        let all = stats.tidegate("tidegate_requests_total", &[]);
        Ok((stats.tidegate("tidegate_requests_total", &[&label]), all))
    };
    let mut last = count().await?;
    until(2 * SOON, &label, async || {
        let (these, all) = count().await?;
        // At least 20 requests were decided, each of them this way.
        let is_so = all - last.1 >= 20.0 && these - last.0 == all - last.1;
        if all - last.1 >= 20.0 {
            last = (these, all);
        }
        Ok(is_so)
    })
    .await
}

#[tokio::test]
async fn good_takes_effect_and_bad_is_refused_under_load() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let shape = |builder: tidegate_tests::rig::Builder| builder.listener(Listener::FromFile);
    let (mut rig, _fake) = scripted(&tools, "reconfigured", 3, shape).await?;
    let load = rig.load(100.0).work_ms(5.0).start();
    decides(&rig, "steered").await?;

    rig.envoys[0].push(|b| b.edit_plugin(|plugin| plugin["mode"] = json!("observe")))?;
    decides(&rig, "observed").await?;

    let bad = json!({"version": 1, "mode": "enforced", "services": []});
    rig.envoys[0].push(|b| b.set_plugin(&bad))?;
    until(SOON, "the gauge says that the last good one is in force", async || {
        Ok(rig.envoy().stats().await?.tidegate("tidegate_config_state", &[]) == 2.0)
    })
    .await?;
    observe(Duration::from_secs(1)).await;
    decides(&rig, "observed").await?;
    let log = rig.envoy().process.output();
    ensure!(log.contains("mode") && log.contains("enforced"), "one line names all errors:\n{log}");

    rig.envoys[0].push(|b| {
        let good = json!({"version": 1, "services": [
            {"name": "llm", "match": {"clusters": ["llm"]}, "slow_start_ms": 0}]});
        b.set_plugin(&good)
    })?;
    decides(&rig, "steered").await?;
    assert_eq!(rig.envoy().stats().await?.tidegate("tidegate_config_state", &[]), 1.0);
    assert_eq!(load.stop().await.failures(), Vec::<String>::new());
    Ok(())
}
