//! A bad configuration at start lets requests pass untouched, and says so.

use anyhow::ensure;
use tidegate_tests::{GpuSpec, Rig, tools_or_skip, until};

use super::common::{SOON, Seen, echo};

#[tokio::test]
async fn bad_from_the_start_passes_requests_through() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let texts =
        ["{", "", "[]", r#"{"version":1,"services":[{"name":"llm","match":{}}],"modus":1}"#];
    for (index, text) in texts.into_iter().enumerate() {
        let rig = Rig::builder(&tools, &format!("bad-configuration-{index}"))
            .gpus(2, GpuSpec::new("a100-80gb"))
            .without_control_plane()
            .concurrency(1)
            .edit(move |b| b.set_plugin_text(text))
            .edit(|b| b.add_list_probe())
            .start()
            .await?;
        for _ in 0..20 {
            let reply = rig.client.get(&echo(&rig)).await?;
            assert_eq!(reply.status, 200, "{text}");
            assert_eq!(Seen::of(&reply)?.get("x-list-probe").unwrap_or("-"), "-", "{text}");
        }
        until(SOON, "the gauge says pass-through", async || {
            Ok(rig.envoy().stats().await?.tidegate("tidegate_config_state", &[]) == 3.0)
        })
        .await?;
        let log = rig.envoy().process.output();
        ensure!(log.contains("configuration refused"), "{text}: a log line:\n{log}");
        let lines = log.lines().filter(|line| line.contains("configuration refused")).count();
        ensure!(lines == 1, "{text}: {lines} lines, one for each VM?\n{log}");
    }
    Ok(())
}
