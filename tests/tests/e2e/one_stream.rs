//! One Envoy process holds one stream to the control plane, however many workers it has.

use std::time::Duration;

use anyhow::ensure;
use tidegate_tests::eventually::observe;
use tidegate_tests::{tools_or_skip, until};

use super::common::{SOON, scripted};

#[tokio::test]
async fn two_workers_share_one_stream() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, fake) = scripted(&tools, "one-stream", 2, |builder| builder.concurrency(2)).await?;
    let load = rig.load(50.0).work_ms(2.0).start();
    until(SOON, "feedback", async || Ok(fake.heard().len() >= 4)).await?;
    let opened = fake.opened();
    ensure!(fake.open() == 1, "{} streams are open", fake.open());
    // Longer than the lease of the watcher and several ticks of every VM.
    observe(Duration::from_secs(3)).await;
    assert_eq!((fake.open(), fake.opened()), (1, opened), "no second stream, no reconnect");
    ensure!(opened <= 2, "{opened} streams were opened");
    let hellos = fake.hellos();
    ensure!(hellos.iter().all(|hello| hello.services == ["llm"]), "{hellos:?}");
    let summary = load.stop().await;
    assert_eq!(summary.failures(), Vec::<String>::new());
    Ok(())
}
