//! Envoy sends each request to the endpoint that the filter put first.

use anyhow::ensure;
use tidegate_tests::tools_or_skip;

use super::common::{Seen, apply, echo, only, scripted};

const REQUESTS: usize = 1_000;

#[tokio::test]
async fn a_thousand_of_a_thousand_requests_go_where_the_filter_says() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let shape = |builder: tidegate_tests::rig::Builder| builder.edit(|b| b.add_list_probe());
    let (rig, _fake) = scripted(&tools, "steering", 6, shape).await?;
    let mut obeyed = 0;
    for _ in 0..REQUESTS {
        let reply = rig.client.get(&echo(&rig)).await?;
        ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
        let list = Seen::of(&reply)?.list()?;
        ensure!(list.len() >= 2, "retries need further endpoints: {list:?}");
        obeyed += usize::from(reply.served_by() == list.first().copied());
    }
    assert_eq!(obeyed, REQUESTS);
    let stats = rig.envoy().stats().await?;
    assert_eq!(stats.tidegate("tidegate_requests_total", &["decision=steered"]), REQUESTS as f64);
    assert_eq!(stats.tidegate("tidegate_misses_total", &[]), 0.0);
    for ledger in rig.models.ledgers().await? {
        ensure!(ledger.started > 0, "{} got nothing of {REQUESTS} requests", ledger.address);
        assert_eq!(ledger.steering_header_seen, 0, "the header stays inside Envoy");
    }
    Ok(())
}

#[tokio::test]
async fn only_the_endpoint_that_is_up_gets_requests() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, fake) = scripted(&tools, "steering-one", 4, |builder| builder).await?;
    let all = rig.models.addresses();
    for (turn, one) in all.iter().enumerate() {
        let update = only(10 + turn as u64, &all, &[*one]);
        apply(&rig, &fake, update).await?;
        for _ in 0..100 {
            let reply = rig.client.get(&echo(&rig)).await?;
            // Left alone, Envoy spreads over all four.
            assert_eq!((reply.status, reply.served_by()), (200, Some(*one)));
        }
    }
    Ok(())
}
