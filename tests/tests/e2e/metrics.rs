//! The filter's metrics come out of Envoy with labels, as the shipped configuration promises.

use anyhow::{Context, ensure};
use tidegate_tests::tools_or_skip;

use super::common::{echo, scripted};

/// Value of the series of `name` whose labels include all of `labels`.
fn series(page: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let line = lines.find(|line| labels.iter().all(|label| line.contains(label)))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn metrics_have_labels() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, _fake) = scripted(&tools, "metrics", 2, |builder| builder).await?;
    for _ in 0..30 {
        ensure!(rig.client.get(&echo(&rig)).await?.status == 200);
    }
    let page = rig.envoy().prometheus().await?;
    let shown = || {
        let ours = page.lines().filter(|line| line.contains("tidegate"));
        ours.collect::<Vec<_>>().join("\n")
    };
    let steered =
        series(&page, "tidegate_requests_total", &[r#"service="llm""#, r#"decision="steered""#]);
    assert_eq!(steered, Some(30.0), "{}", shown());
    let picks = series(&page, "tidegate_picks_total", &[r#"service="llm""#, "reason="]);
    ensure!(picks.is_some_and(|picks| picks > 0.0), "{}", shown());
    let ok = series(&page, "tidegate_outcomes_total", &[r#"service="llm""#, r#"outcome="ok""#]);
    assert_eq!(ok, Some(30.0), "{}", shown());
    let rung = series(&page, "tidegate_ladder_rung", &[r#"service="llm""#]);
    assert_eq!(rung.context(shown())?, 0.0);
    for name in ["tidegate_snapshot_age_ms", "tidegate_config_state", "tidegate_stream_state"] {
        ensure!(series(&page, name, &[]).is_some(), "{name} is missing:\n{}", shown());
    }
    // A label that stays in the name would make a family for each service.
    ensure!(!page.contains("tidegate_requests_total_service"), "{}", shown());
    Ok(())
}
