use super::*;
use text::Figures;

fn workload(text: &str) -> Workload {
    let json = format!(
        r#"{{"version":1,"workloads":[{{"endpoint":"127.0.0.1:1","service":"s","gpus":[0]{text}}}]}}"#
    );
    let value = serde_json::from_str(&json).unwrap();
    tidegate_reporter_config::parse_workloads(&value).unwrap().workloads.remove(0)
}

fn read(page: &str) -> Engine {
    let mut figures = Figures::default();
    figures.feed(page.as_bytes());
    figures.finish();
    reading(&figures, &mut Window::default(), &workload(""), Instant::now())
}

fn shown(e: Engine) -> (&'static str, Option<u32>, Option<u32>, Option<u32>, Option<u32>) {
    (e.kind, e.running, e.waiting, e.kv_use_bp, e.slots)
}

const VLLM: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tide{1b}"} 3.0
vllm:num_requests_running{engine="1",model_name="tide{1b}"} 4.0
vllm:num_requests_waiting{engine="0",model_name="tide{1b}"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="tide{1b}"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tide{1b}"} 0.5
vllm:request_success_total{engine="0",finished_reason="stop"} 40.0
vllm:request_success_total{engine="0",finished_reason="length"} 2.0
vllm:generation_tokens_created 1.7e9
"#;

#[test]
fn vllm_engines_add_up_and_the_fullest_cache_decides() {
    // 3 + 4 running; cache use is the larger of 0.25 and 0.5.
    let engine = read(VLLM);
    assert_eq!(shown(engine), ("vllm", Some(7), Some(2), Some(5_000), None));
    assert_eq!(engine.finished_total, Some(42));
    assert_eq!(engine.tokens_per_second, None);
}

#[test]
fn vllm_before_the_rename_still_tells_its_cache() {
    let old = "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.125\n";
    assert_eq!(read(old).kv_use_bp, Some(1_250));
    let both = "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n";
    assert_eq!(read(both).kv_use_bp, Some(1_000));
}

#[test]
fn sglang_is_read() {
    let page = "sglang:num_running_reqs{tp_rank=\"0\"} 5.0\nsglang:num_queue_reqs{tp_rank=\"0\"} 1.0\n\
        sglang:token_usage{tp_rank=\"0\"} 0.28\nsglang:max_running_requests 48\n";
    assert_eq!(shown(read(page)), ("sglang", Some(5), Some(1), Some(2_800), Some(48)));
}

#[test]
fn tgi_has_no_cache_figure() {
    let page = "tgi_queue_size 7\ntgi_batch_current_size 12\ntgi_batch_current_max_tokens 4096\n";
    assert_eq!(shown(read(page)), ("tgi", Some(12), Some(7), None, None));
}

#[test]
fn plain_triton_knows_what_waits_only() {
    let page = "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 2\n\
        nv_inference_pending_request_count{model=\"b\",version=\"1\"} 3\nnv_gpu_utilization 0.5\n";
    assert_eq!(shown(read(page)), ("triton", None, Some(5), None, None));
}

#[test]
fn triton_with_tensorrt_llm_is_told_from_plain_triton() {
    let page = "nv_inference_pending_request_count{model=\"m\"} 9\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 4\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 6\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"context\",version=\"1\"} 99\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 64\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\"} 0.75\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"m\"} 750\n";
    assert_eq!(shown(read(page)), ("trtllm", Some(6), Some(4), Some(7_500), Some(64)));
}

#[test]
fn trtllm_serve_is_read() {
    let page = "trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 0\n\
        trtllm_kv_cache_utilization 0.5\n";
    assert_eq!(shown(read(page)), ("trtllm", Some(2), Some(0), Some(5_000), None));
}

#[test]
fn a_missing_metric_is_unknown_and_a_zero_is_zero() {
    let engine = read("vllm:num_requests_running 0\n");
    assert_eq!(shown(engine), ("vllm", Some(0), None, None, None));
}

#[test]
fn values_that_cannot_be_are_unknown() {
    for bad in ["NaN", "+Inf", "-1", "5e12", "x", ""] {
        let page = format!("vllm:num_requests_running {bad}\nvllm:num_requests_waiting 1\n");
        assert_eq!(read(&page).running, None, "{bad}");
    }
    assert_eq!(read("vllm:kv_cache_usage_perc 1.01\n").kv_use_bp, None);
    assert_eq!(read("vllm:kv_cache_usage_perc 1.0\n").kv_use_bp, Some(10_000));
}

#[test]
fn slots_come_from_the_metric_or_else_from_the_file() {
    let mut figures = Figures::default();
    figures.feed(b"vllm:num_requests_running 0\n");
    let of = |figures: &Figures, text| {
        reading(figures, &mut Window::default(), &workload(text), Instant::now()).slots
    };
    assert_eq!(of(&figures, r#","slots":8"#), Some(8));
    figures.feed(b"vllm:max_num_seqs 16\n");
    assert_eq!(of(&figures, r#","slots":8"#), Some(16));
    assert_eq!(of(&Figures::default(), ""), None);
}

#[test]
fn pieces_may_end_anywhere() {
    let whole = shown(read(VLLM));
    for size in [1, 2, 7, 64] {
        let mut figures = Figures::default();
        for piece in VLLM.as_bytes().chunks(size) {
            figures.feed(piece);
        }
        figures.finish();
        let engine = reading(&figures, &mut Window::default(), &workload(""), Instant::now());
        assert_eq!(shown(engine), whole, "{size}");
    }
}

#[test]
fn any_bytes_are_survived() {
    let mut figures = Figures::default();
    let line = [b"vllm:num_requests_running{".as_slice(), &[b'a'; 40_000], b"\n"].concat();
    figures.feed(&line);
    figures.feed(&[0xff, 0xfe, b'\n']);
    figures.feed(b"vllm:num_requests_running{a=\"\\\"}\n{}\n=\n\nvllm:num_requests_running 4");
    figures.finish();
    assert_eq!(figures.gauge(names::Figure::Running), Some(4.0));
}

#[test]
fn a_named_engine_hides_the_names_of_others() {
    let page = b"vllm:num_requests_running 1\ntgi_queue_size 5\n";
    let mut figures = Figures::expecting(Some(tidegate_reporter_config::EngineKind::Tgi));
    figures.feed(page);
    let engine = reading(&figures, &mut Window::default(), &workload(""), Instant::now());
    assert_eq!((engine.running, engine.waiting), (None, Some(5)));
}

#[test]
fn an_old_reading_is_not_told() {
    let engines = Engines::default();
    let endpoint = "127.0.0.1:1".parse().unwrap();
    let then = Instant::now();
    engines.set(endpoint, then, Engine::default());
    let at = |ms| {
        let period = Duration::from_millis(500);
        engines.of(endpoint, then + Duration::from_millis(ms), period).map(|e| e.age_ms)
    };
    assert_eq!((at(0), at(2_000), at(2_001)), (Some(0), Some(2_000), None));
}

#[tokio::test(start_paused = true)]
async fn refresh_waits_for_all_servers_but_not_for_slow_ones() {
    let [quick, slow]: [SocketAddr; 2] = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
    let engines = Engines::default();
    let within = Duration::from_millis(50);
    let took = async |engines: &Engines| {
        let start = tokio::time::Instant::now();
        engines.refresh(within).await;
        start.elapsed()
    };
    assert_eq!(took(&engines).await, Duration::ZERO, "nobody to wait for");
    for (server, answers_in) in [(quick, Duration::from_millis(7)), (slow, within * 2)] {
        let engines = engines.clone();
        let mut rounds = engines.rounds(server);
        tokio::spawn(async move {
            while rounds.changed().await.is_ok() {
                let round = *rounds.borrow_and_update();
                tokio::time::sleep(answers_in).await;
                engines.done(server, round);
            }
        });
    }
    assert_eq!(took(&engines).await, within);
    engines.forget(slow);
    assert_eq!(took(&engines).await, Duration::from_millis(7));
}
