//! Envoy's counters and gauges by full name, with the filter's labels taken apart.

use std::collections::BTreeMap;

/// Prefix that Envoy puts before the metrics of wasm modules.
const WASM: &str = "wasmcustom.";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats(pub BTreeMap<String, f64>);

impl Stats {
    /// Reads the admin page `/stats`; histograms, which are no single number, are left out.
    #[must_use]
    pub fn parse(page: &str) -> Self {
        let pairs = page.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// Value of one metric of Envoy's own; absent is 0, as Envoy leaves unused ones out.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// Sum of the filter's metric `name` over the series that have all these `label=value` parts.
    #[must_use]
    pub fn tidegate(&self, name: &str, labels: &[&str]) -> f64 {
        self.series(name).filter(|(tail, _)| has_all(tail, labels)).map(|(_, value)| value).sum()
    }

    /// Whether the filter has that metric at all.
    #[must_use]
    pub fn has_tidegate(&self, name: &str) -> bool {
        self.series(name).next().is_some()
    }

    /// Label parts and value of each series of one of the filter's metrics.
    pub fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(full, value)| {
            let tail = full.strip_prefix(WASM)?.strip_prefix(name)?;
            (tail.is_empty() || tail.starts_with('.')).then_some((tail, *value))
        })
    }
}

/// Whether `.a=x.b=y` has each of the wanted parts whole.
fn has_all(tail: &str, labels: &[&str]) -> bool {
    labels.iter().all(|label| {
        tail.split_once(&format!(".{label}"))
            .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_matched_whole() {
        let stats = Stats::parse(
            "cluster.llm.upstream_rq_total: 7\n\
             wasmcustom.tidegate_picks_total.service=llm.reason=li: 3\n\
             wasmcustom.tidegate_picks_total.service=llm.reason=light: 4\n\
             wasmcustom.tidegate_picks_total.service=llm2.reason=li: 5\n\
             wasmcustom.tidegate_age: 1\nx: P0(1,2)\n",
        );
        assert_eq!(stats.get("cluster.llm.upstream_rq_total"), 7.0);
        assert_eq!(stats.tidegate("tidegate_picks_total", &[]), 12.0);
        assert_eq!(stats.tidegate("tidegate_picks_total", &["reason=li"]), 8.0);
        assert_eq!(stats.tidegate("tidegate_picks_total", &["service=llm", "reason=li"]), 3.0);
        assert_eq!(stats.tidegate("tidegate_age", &[]), 1.0);
        assert!(!stats.has_tidegate("tidegate_pick") && stats.has_tidegate("tidegate_age"));
    }
}
