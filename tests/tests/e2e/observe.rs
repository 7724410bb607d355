//! In mode `observe` the filter decides and counts, and touches nothing.

use std::collections::BTreeSet;

use serde_json::json;
use tidegate_tests::tools_or_skip;

use super::common::{Seen, apply, echo, only, scripted};

#[tokio::test]
async fn observe_counts_and_does_not_steer() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let shape = |builder: tidegate_tests::rig::Builder| {
        builder.plugin(|plugin| plugin["mode"] = json!("observe")).edit(|b| b.add_list_probe())
    };
    let (rig, fake) = scripted(&tools, "observe", 4, shape).await?;
    let all = rig.models.addresses();
    apply(&rig, &fake, only(2, &all, &all[..1])).await?;
    let mut served = BTreeSet::new();
    for _ in 0..200 {
        let reply = rig.client.get(&echo(&rig)).await?;
        assert_eq!(reply.status, 200);
        // Envoy writes `-` for a header that is not there.
        let probe = Seen::of(&reply)?.get("x-list-probe").unwrap_or("-").to_owned();
        assert_eq!(probe, "-", "no list is written");
        served.extend(reply.served_by());
    }
    assert_eq!(served.len(), 4, "Envoy's own policy spreads over all, up or not");
    let stats = rig.envoy().stats().await?;
    assert_eq!(stats.tidegate("tidegate_requests_total", &["decision=observed"]), 200.0);
    assert_eq!(stats.tidegate("tidegate_requests_total", &["decision=steered"]), 0.0);
    Ok(())
}
