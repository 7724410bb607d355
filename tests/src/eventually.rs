//! Waiting for a condition: polled until it holds or the time is up, never a fixed pause.

use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

const POLL: Duration = Duration::from_millis(20);

/// Polls `check` until it gives a value. An error of the check counts as "not yet" and is told when
/// the time is up.
///
/// # Errors
/// The time was up; says `what` did not come, and the last error.
pub async fn eventually<T>(
    within: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    loop {
        let last = match check().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if Instant::now() >= deadline {
            match last {
                Some(error) => bail!("not within {within:?}: {what}; last: {error:#}"),
                None => bail!("not within {within:?}: {what}"),
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Polls until `check` is true.
///
/// # Errors
/// The time was up.
pub async fn until(
    within: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    eventually(within, what, async || Ok(check().await?.then_some(()))).await
}

/// Lets `span` of load pass: a length of observation, not a wait for something to happen.
pub async fn observe(span: Duration) {
    tokio::time::sleep(span).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_late_value_is_found_and_a_missing_one_is_named() {
        let mut calls = 0;
        let found = eventually(Duration::from_secs(5), "third call", async || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(found.await.unwrap(), 3);
        let never = until(Duration::from_millis(1), "the moon", async || bail!("no rocket")).await;
        let text = never.unwrap_err().to_string();
        assert!(text.contains("the moon") && text.contains("no rocket"), "{text}");
    }
}
