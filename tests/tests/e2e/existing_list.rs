//! An endpoint list that an earlier endpoint picker set is re-ordered and filtered, or replaced.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::json;
use tidegate_tests::{Rig, Tools, tools_or_skip};

use super::common::{Seen, echo, only, scripted};

/// Sends 100 requests after a picker that named the first two of four endpoints and a stranger; the
/// first endpoint is down. Gives all endpoints of our lists.
async fn lists(tools: &Tools, option: &'static str) -> anyhow::Result<(BTreeSet<SocketAddr>, Rig)> {
    let name = format!("existing-list-{option}");
    let (rig, fake) = scripted(tools, &name, 4, |builder| {
        builder.plugin(move |plugin| plugin["services"][0]["existing_list"] = json!(option)).edit(
            |b| {
                let pool = b.cluster("llm")?.clone();
                let members = &pool["load_assignment"]["endpoints"][0]["lb_endpoints"];
                let port =
                    |i: usize| &members[i]["endpoint"]["address"]["socket_address"]["port_value"];
                b.add_earlier_picker(&format!(
                    "127.0.0.1:{}, 127.0.0.1:1,127.0.0.1:{}",
                    port(0),
                    port(1)
                ))?;
                b.add_list_probe()
            },
        )
    })
    .await?;
    let all = rig.models.addresses();
    super::common::apply(&rig, &fake, only(2, &all, &all[1..])).await?;
    let mut named = BTreeSet::new();
    for _ in 0..100 {
        let reply = rig.client.get(&echo(&rig)).await?;
        ensure!(reply.status == 200, "status {}", reply.status);
        let list = Seen::of(&reply)?.list()?;
        // Envoy skips a name that is no member of its pool.
        let member = list.iter().find(|address| all.contains(address)).copied();
        assert_eq!(reply.served_by(), member, "{list:?}");
        named.extend(list);
    }
    Ok((named, rig))
}

#[tokio::test]
async fn reorder_keeps_to_the_list_and_drops_what_is_down() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (named, rig) = lists(&tools, "reorder").await?;
    // The picker may know endpoints that the control plane does not: the stranger stays.
    let stranger = "127.0.0.1:1".parse()?;
    assert_eq!(named, BTreeSet::from([stranger, rig.gpu(1)]), "of the named ones, one is down");
    Ok(())
}

#[tokio::test]
async fn replace_uses_every_endpoint_that_is_up() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (named, rig) = lists(&tools, "replace").await?;
    assert_eq!(named, BTreeSet::from([rig.gpu(1), rig.gpu(2), rig.gpu(3)]));
    Ok(())
}
