//! The engine's metrics, with the names of vLLM 0.33.
//!
//! vLLM tells no slot count, so a scraper must be told it by other means; the histogram's bounds
//! are a subset of vLLM's.

use std::fmt::Write;

const TTFT_BOUNDS_S: [f64; 14] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 2.5, 5.0, 10.0, 20.0];
const BLOCK_TOKENS: u64 = 16;

#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [u64; TTFT_BOUNDS_S.len()],
    count: u64,
    sum_s: f64,
}

impl Histogram {
    pub(crate) fn record(&mut self, seconds: f64) {
        self.count += 1;
        self.sum_s += seconds;
        for (bound, bucket) in TTFT_BOUNDS_S.iter().zip(&mut self.buckets) {
            *bucket += u64::from(seconds <= *bound);
        }
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let _ = writeln!(out, "# TYPE {name} histogram");
        for (bound, bucket) in TTFT_BOUNDS_S.iter().zip(&self.buckets) {
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {bucket}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", self.count);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.sum_s);
    }
}

/// Counters of one GPU's engine.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) success: u64,
    pub(crate) ttft: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) e2e: Histogram,
}

/// What is true at the moment of the scrape.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) kv_ratio: f64,
    pub(crate) kv_tokens: u64,
}

pub(crate) fn render(model: &str, now: Now, counters: &Counters) -> String {
    let mut out = String::with_capacity(4_096);
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    for (name, kind, value) in [
        ("vllm:num_requests_running", "gauge", now.running as f64),
        ("vllm:num_requests_waiting", "gauge", now.waiting as f64),
        ("vllm:kv_cache_usage_perc", "gauge", now.kv_ratio),
        ("vllm:prompt_tokens_total", "counter", counters.prompt_tokens as f64),
        ("vllm:generation_tokens_total", "counter", counters.generation_tokens as f64),
    ] {
        let _ = writeln!(out, "# TYPE {name} {kind}\n{name}{{{labels}}} {value}");
    }
    let _ = writeln!(
        out,
        "# TYPE vllm:request_success_total counter\n\
         vllm:request_success_total{{{labels},finished_reason=\"length\"}} {}\n\
         # TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{block_size=\"{BLOCK_TOKENS}\",engine=\"0\",num_gpu_blocks=\"{}\"}} 1",
        counters.success,
        now.kv_tokens / BLOCK_TOKENS
    );
    counters.ttft.write(&mut out, "vllm:time_to_first_token_seconds", &labels);
    counters.queue.write(&mut out, "vllm:request_queue_time_seconds", &labels);
    counters.e2e.write(&mut out, "vllm:e2e_request_latency_seconds", &labels);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut histogram = Histogram::default();
        for seconds in [0.005, 0.0051, 30.0] {
            histogram.record(seconds);
        }
        // 0.005 lies on its bound; 0.0051 in the next; 30 only in +Inf.
        assert_eq!(histogram.buckets[..3], [0, 1, 2]);
        assert_eq!((histogram.buckets[13], histogram.count), (2, 3));
    }

    #[test]
    fn page_has_the_names_that_a_scraper_looks_for() {
        let now = Now { running: 3, waiting: 2, kv_ratio: 0.25, kv_tokens: 1_600 };
        let page = render("m", now, &Counters::default());
        for line in [
            "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3",
            "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25",
            "num_gpu_blocks=\"100\"",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 0",
        ] {
            assert!(page.contains(line), "{line} is missing in\n{page}");
        }
    }
}
