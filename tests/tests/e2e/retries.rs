//! A try that fails before the first byte goes on to the next endpoint of the list; a stream that has
//! begun is never tried again.

use std::net::SocketAddr;

use anyhow::ensure;
use tidegate_tests::{Fault, Rig, tools_or_skip};

use super::common::{Seen, echo, scripted};

const REQUESTS: usize = 60;

/// Breaks one GPU in the given way: every request succeeds at the list's next endpoint.
async fn check(rig: &Rig, fault: Fault) -> anyhow::Result<()> {
    let broken = rig.gpu(0);
    let before = rig.models.ledger(broken).await?;
    rig.models.fault(broken, fault).await?;
    let mut retried = 0;
    for _ in 0..REQUESTS {
        let reply = rig.client.get(&echo(rig)).await?;
        ensure!(reply.status == 200, "{fault:?}: status {}: {}", reply.status, reply.text());
        let list = Seen::of(&reply)?.list()?;
        let attempts: usize = reply.header("x-envoy-attempt-count").parse()?;
        let served: Option<SocketAddr> = reply.served_by();
        assert_eq!(
            served,
            list.get(attempts - 1).copied(),
            "{fault:?}: try {attempts} of {list:?}"
        );
        retried += usize::from(attempts > 1);
        if attempts > 1 {
            assert_eq!(list[0], broken, "{fault:?}: only the broken one needs a second try");
        }
    }
    let after = rig.models.ledger(broken).await?;
    if fault != Fault::Refuse {
        assert_eq!(after.faulted - before.faulted, retried as u64, "{fault:?} met each first try");
    }
    ensure!(retried > 0, "{fault:?}: the fault met no request");
    rig.models.fault(broken, Fault::None).await?;
    Ok(())
}

#[tokio::test]
async fn a_failed_try_goes_on_to_the_next_endpoint_of_the_list() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    for fault in [Fault::Error500, Fault::Error503, Fault::Reset, Fault::Refuse] {
        // A fresh rig for each, since the filter learns which endpoint fails.
        let name = format!("retries-{}", fault.as_str());
        let shape = |builder: tidegate_tests::rig::Builder| builder.edit(|b| b.add_list_probe());
        let (rig, _fake) = scripted(&tools, &name, 3, shape).await?;
        check(&rig, fault).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_that_has_begun_is_not_tried_again() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, _fake) = scripted(&tools, "retries-stream", 3, |builder| builder).await?;
    for gpu in rig.models.addresses() {
        rig.models.fault(gpu, Fault::CutStream).await?;
    }
    for _ in 0..8 {
        // 20 ms between the first token and the reset, which throws away what was not yet read.
        let reply = rig.client.chat_stream(rig.envoy().address, 320.0).await?;
        ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
        ensure!(!reply.body.is_empty(), "the stream did not begin");
        ensure!(!reply.is_whole && !reply.text().contains("[DONE]"), "the end is not made up");
    }
    let ledgers = rig.models.ledgers().await?;
    let started: u64 = ledgers.iter().map(|ledger| ledger.started).sum();
    let faulted: u64 = ledgers.iter().map(|ledger| ledger.faulted).sum();
    assert_eq!((started, faulted), (8, 8), "each request was sent once and met the fault");
    Ok(())
}
