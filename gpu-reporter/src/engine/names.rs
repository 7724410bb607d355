//! Which metric of which engine means what.
//!
//! Names change between versions, so each figure is a list, newest first. Sources: vLLM 0.33 and its
//! older `gpu_cache_usage_perc`; SGLang 0.5; text-generation-inference 3; Triton with and without the
//! TensorRT-LLM backend; trtllm-serve's collector.

use tidegate_reporter_config::EngineKind::{self, Sglang, Tgi, Triton, Trtllm, Vllm};

/// A figure that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Figure {
    Running,
    Waiting,
    /// Share of the KV cache in use, 0–1.
    KvUse,
    Slots,
    /// Histogram, seconds.
    Ttft,
    /// Counter of generated tokens.
    Tokens,
    /// Counter of finished requests.
    Finished,
}

use Figure::{Finished, KvUse, Running, Slots, Tokens, Ttft, Waiting};

/// How series of one name become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// Engines behind one port add up.
    Sum,
    /// A share of several caches: the fullest decides.
    Max,
    /// Buckets of all series add up, bound by bound.
    Histogram,
}

/// One metric to look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) kind: EngineKind,
    pub(super) figure: Figure,
    pub(super) name: &'static str,
    /// A label that must have this value.
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) fold: Fold,
}

const fn plain(kind: EngineKind, figure: Figure, name: &'static str) -> Wanted {
    let fold = match figure {
        KvUse => Fold::Max,
        Ttft => Fold::Histogram,
        _ => Fold::Sum,
    };
    Wanted { kind, figure, name, label: None, fold }
}

const fn labelled(
    kind: EngineKind,
    figure: Figure,
    name: &'static str,
    label: (&'static str, &'static str),
) -> Wanted {
    let mut wanted = plain(kind, figure, name);
    wanted.label = Some(label);
    wanted
}

/// Newest name first within one engine and figure.
pub(super) const WANTED: &[Wanted] = &[
    plain(Vllm, Running, "vllm:num_requests_running"),
    plain(Vllm, Waiting, "vllm:num_requests_waiting"),
    plain(Vllm, KvUse, "vllm:kv_cache_usage_perc"),
    plain(Vllm, KvUse, "vllm:gpu_cache_usage_perc"),
    plain(Vllm, Slots, "vllm:max_num_seqs"),
    plain(Vllm, Ttft, "vllm:time_to_first_token_seconds"),
    plain(Vllm, Tokens, "vllm:generation_tokens_total"),
    plain(Vllm, Tokens, "vllm:generation_tokens"),
    plain(Vllm, Finished, "vllm:request_success_total"),
    plain(Vllm, Finished, "vllm:request_success"),
    plain(Sglang, Running, "sglang:num_running_reqs"),
    plain(Sglang, Waiting, "sglang:num_queue_reqs"),
    plain(Sglang, KvUse, "sglang:token_usage"),
    plain(Sglang, Slots, "sglang:max_running_requests"),
    plain(Sglang, Ttft, "sglang:time_to_first_token_seconds"),
    plain(Sglang, Tokens, "sglang:generation_tokens_total"),
    plain(Sglang, Finished, "sglang:num_requests_total"),
    plain(Tgi, Running, "tgi_batch_current_size"),
    plain(Tgi, Waiting, "tgi_queue_size"),
    plain(Tgi, Slots, "tgi_batch_current_max_size"),
    plain(Tgi, Ttft, "tgi_request_time_to_first_token"),
    plain(Tgi, Tokens, "tgi_request_generated_tokens_sum"),
    plain(Tgi, Finished, "tgi_request_success_total"),
    plain(Tgi, Finished, "tgi_request_success"),
    labelled(Trtllm, Running, "nv_trt_llm_request_metrics", ("request_type", "scheduled")),
    labelled(Trtllm, Running, "nv_trt_llm_request_metrics", ("request_type", "active")),
    labelled(Trtllm, Waiting, "nv_trt_llm_request_metrics", ("request_type", "waiting")),
    labelled(Trtllm, Slots, "nv_trt_llm_request_metrics", ("request_type", "max")),
    labelled(
        Trtllm,
        KvUse,
        "nv_trt_llm_kv_cache_block_metrics",
        ("kv_cache_block_type", "fraction"),
    ),
    plain(Trtllm, Running, "trtllm_num_requests_running"),
    plain(Trtllm, Waiting, "trtllm_num_requests_waiting"),
    plain(Trtllm, KvUse, "trtllm_kv_cache_utilization"),
    plain(Trtllm, Ttft, "trtllm_time_to_first_token_seconds"),
    plain(Trtllm, Finished, "trtllm_request_success_total"),
    plain(Triton, Waiting, "nv_inference_pending_request_count"),
    plain(Triton, Finished, "nv_inference_request_success"),
];
