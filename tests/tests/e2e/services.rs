//! Several services keep to their own endpoints, and what belongs to none passes untouched.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::json;
use tidegate_tests::fake_control_plane::full_update;
use tidegate_tests::{Rig, tools_or_skip};

use super::common::{Seen, apply, scripted};

/// Who serves 60 requests to `path`, and whether the filter wrote a list for each of them.
async fn ask(rig: &Rig, path: &str) -> anyhow::Result<(BTreeSet<SocketAddr>, bool)> {
    let (mut served, mut lists) = (BTreeSet::new(), 0);
    for _ in 0..60 {
        let reply = rig.client.get(&format!("http://{}{path}", rig.envoy().address)).await?;
        ensure!(reply.status == 200, "{path}: {}", reply.status);
        lists += usize::from(Seen::of(&reply)?.list().is_ok());
        served.extend(reply.served_by());
    }
    ensure!(lists == 0 || lists == 60, "{path}: {lists} lists for 60 requests");
    Ok((served, lists == 60))
}

#[tokio::test]
async fn each_service_keeps_to_its_endpoints() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, fake) = scripted(&tools, "services", 5, |builder| {
        builder
            .edit(|b| {
                let pool = b.cluster("llm")?.clone();
                let members = pool["load_assignment"]["endpoints"].clone();
                for (name, prefix) in [("images", "/images/"), ("other", "/other/")] {
                    b.add_pool(name, prefix, &[])?;
                    b.cluster(name)?["load_assignment"]["endpoints"] = members.clone();
                }
                b.add_list_probe()
            })
            .plugin(|plugin| {
                let images = json!({"name": "images", "match": {"path_prefixes": ["/images/"]},
                    "slow_start_ms": 0});
                if let Some(services) = plugin["services"].as_array_mut() {
                    services.push(images);
                }
            })
    })
    .await?;
    let all = rig.models.addresses();
    let mut update = full_update(1_000, "llm", &all[..2]);
    update.services.extend(full_update(1_000, "images", &all[2..4]).services);
    apply(&rig, &fake, update).await?;

    let set = |part: &[SocketAddr]| part.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(ask(&rig, "/v1/x").await?, (set(&all[..2]), true), "matched by cluster");
    assert_eq!(ask(&rig, "/images/x").await?, (set(&all[2..4]), true), "matched by path");
    assert_eq!(ask(&rig, "/other/x").await?, (set(&all), false), "matched by none");
    let stats = rig.envoy().stats().await?;
    for (labels, count) in [
        (["decision=steered", "service=llm"], 60.0),
        (["decision=steered", "service=images"], 60.0),
    ] {
        assert_eq!(stats.tidegate("tidegate_requests_total", &labels), count, "{labels:?}");
    }
    assert_eq!(stats.tidegate("tidegate_requests_total", &["decision=passed"]), 60.0);
    Ok(())
}
