//! A model server's own metrics: scraped each period, for wanted names only.
//!
//! `names` knows which metric of which engine means what, newest name first; `text` reads the exposition
//! format line by line; `window` turns counters and histograms into rates and quantiles. A metric that
//! is not there is unknown, never zero. One task per model server, so that one that does not answer
//! delays nobody.
//!
//! A report asks for fresh readings before it leaves ([`Engines::refresh`]): with periods of their own
//! the readings would be half a period old on average, and the count of requests is what ages fastest.

mod names;
mod scrape;
mod text;
mod window;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tidegate_reporter_config::Workload;
use tokio::sync::{Notify, watch};

use crate::sample::Engine;
pub use scrape::{Scraper, ScraperSettings};
use window::Window;

/// Readings older than three periods are not told, and never younger ones than this.
const AGE_FLOOR: Duration = Duration::from_secs(2);

/// The newest reading of each model server.
#[derive(Clone, Default)]
pub struct Engines(Arc<Board>);

#[derive(Default)]
struct Board {
    readings: Mutex<BTreeMap<SocketAddr, Reading>>,
    /// The round of readings that was asked for last.
    round: watch::Sender<u64>,
    /// The round that each server was asked in last.
    asked: Mutex<BTreeMap<SocketAddr, u64>>,
    answered: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    engine: Engine,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engines {
    /// What is known of the server at `endpoint`.
    #[must_use]
    pub fn of(&self, endpoint: SocketAddr, now: Instant, period: Duration) -> Option<Engine> {
        let readings = lock(&self.0.readings);
        let reading = readings.get(&endpoint)?;
        let age = now.saturating_duration_since(reading.at);
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        (age <= (period * 3).max(AGE_FLOOR)).then_some(Engine { age_ms, ..reading.engine })
    }

    fn set(&self, endpoint: SocketAddr, at: Instant, engine: Engine) {
        lock(&self.0.readings).insert(endpoint, Reading { at, engine });
    }

    fn forget(&self, endpoint: SocketAddr) {
        lock(&self.0.readings).remove(&endpoint);
        lock(&self.0.asked).remove(&endpoint);
        self.0.answered.notify_waiters();
    }

    /// Has every model server read again, and waits for that, but not for those that are slow.
    pub async fn refresh(&self, within: Duration) {
        let mut round = 0;
        self.0.round.send_modify(|number| {
            *number += 1;
            round = *number;
        });
        let all = async {
            loop {
                let answered = self.0.answered.notified();
                tokio::pin!(answered);
                // Before the look, or an answer between look and wait would be missed.
                answered.as_mut().enable();
                if lock(&self.0.asked).values().all(|asked| *asked >= round) {
                    return;
                }
                answered.await;
            }
        };
        let _ = tokio::time::timeout(within, all).await;
    }

    /// The rounds as the task of a new server follows them.
    fn rounds(&self, endpoint: SocketAddr) -> watch::Receiver<u64> {
        lock(&self.0.asked).insert(endpoint, 0);
        self.0.round.subscribe()
    }

    /// The server at `endpoint` has answered in this round, or failed to.
    fn done(&self, endpoint: SocketAddr, round: u64) {
        if let Some(asked) = lock(&self.0.asked).get_mut(&endpoint) {
            *asked = round;
        }
        self.0.answered.notify_waiters();
    }
}

/// Makes one reading of what a page said.
fn reading(
    figures: &text::Figures,
    window: &mut Window,
    workload: &Workload,
    now: Instant,
) -> Engine {
    let gauge = |figure| figures.gauge(figure);
    let whole = |value: Option<f64>| value.and_then(to_u32).filter(|n| *n <= REQUESTS_MAX);
    let rates = window.add(now, figures);
    Engine {
        age_ms: 0,
        kind: workload.engine.or(figures.kind()).map_or("unknown", |kind| kind.as_str()),
        running: whole(gauge(names::Figure::Running)),
        waiting: whole(gauge(names::Figure::Waiting)),
        kv_use_bp: gauge(names::Figure::KvUse)
            .filter(|share| (0.0..=1.0).contains(share))
            .and_then(|share| to_u32(share * 10_000.0)),
        slots: whole(gauge(names::Figure::Slots)).filter(|n| *n > 0).or(workload.slots),
        ttft_p50_ms: rates.ttft_p50_ms,
        ttft_p95_ms: rates.ttft_p95_ms,
        tokens_per_second: rates.tokens_per_second,
        finished_total: figures.counter(names::Figure::Finished).and_then(to_u64),
    }
}

/// More requests than this on one server are a mistake of its page.
const REQUESTS_MAX: u32 = 1_000_000;

/// Whole, finite and not negative, or unknown.
fn to_u64(value: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range is checked")]
    (value.is_finite() && (0.0..=9e15).contains(&value)).then(|| value.round() as u64)
}

fn to_u32(value: f64) -> Option<u32> {
    to_u64(value).and_then(|v| u32::try_from(v).ok())
}

#[cfg(test)]
#[path = "engine/tests.rs"]
mod tests;
