//! What a client may not do, and what becomes of it.

use std::time::Duration;

use crate::common::{Plane, Proxy, Reporter, eventually, feedback, hello, report};
use prost::Message;
use tidegate_control_plane::metrics::{ReportReason, StreamEnd, StreamKind};
use tidegate_proto::v1::{self, ReportVerdict};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tonic::{Code, transport::Endpoint};

/// A report whose encoding has exactly so many bytes.
fn padded(sequence: u64, bytes: usize) -> v1::ReportRequest {
    let mut report = report(sequence, 1);
    report.reporter_version = "v".repeat(bytes - 500);
    let missing = bytes - report.encoded_len();
    report.reporter_version.push_str(&"v".repeat(missing));
    assert_eq!(report.encoded_len(), bytes);
    report
}

#[tokio::test]
async fn message_is_taken_at_the_limit_and_ends_the_stream_above() {
    let plane = Plane::quick(1, "limits: {message_bytes: 4096}").await;
    let mut reporter = plane.reporter().await;
    assert_eq!(reporter.report(padded(1, 4_096)).await.verdict(), ReportVerdict::Accepted);
    reporter.send(padded(2, 4_097)).await;
    let end = reporter.answer().await.unwrap_err();
    assert_eq!(end.code(), Code::OutOfRange, "{end}");
    assert_eq!(plane.server.core.metrics.rejected(ReportReason::MessageSize), 1);
    let sequence = plane.json("/api/fleet").await["nodes"][0]["sequence"].clone();
    assert_eq!(sequence, 1, "nothing changed");
}

#[tokio::test]
async fn streams_of_a_connection_wait_above_the_limit() {
    let plane = Plane::quick(1, "limits: {streams_per_connection: 2}").await;
    let channel = plane.channel().await;
    let first = Reporter::open(channel.clone()).await.unwrap();
    let _second = Reporter::open(channel.clone()).await.unwrap();
    let mut third = Box::pin(Reporter::open(channel));
    assert!(timeout(Duration::from_millis(200), &mut third).await.is_err(), "it waits");
    drop(first);
    assert!(timeout(crate::common::DEADLINE, third).await.unwrap().is_ok());
}

#[tokio::test]
async fn connections_are_taken_at_the_limit_and_closed_above() {
    let plane = Plane::quick(1, "limits: {connections: 2}").await;
    let metrics = &plane.server.core.metrics;
    let address = plane.server.grpc;
    let first = TcpStream::connect(address).await.unwrap();
    let _second = TcpStream::connect(address).await.unwrap();
    eventually("two connections", async || metrics.connections.get() == 2).await;
    let mut third = TcpStream::connect(address).await.unwrap();
    let read = timeout(crate::common::DEADLINE, third.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "closed: {read:?}");
    assert_eq!(metrics.connections_refused.get(), 1);
    drop(first);
    eventually("a place is free", async || metrics.connections.get() == 1).await;
    let _fourth = TcpStream::connect(address).await.unwrap();
    eventually("it is taken", async || metrics.connections.get() == 2).await;
}

#[tokio::test]
async fn connection_that_says_nothing_is_closed() {
    let plane =
        Plane::start(&crate::common::fleet_yaml(1), "timeouts: {warm_up_ms: 0, hello_ms: 100}")
            .await;
    let mut silent = TcpStream::connect(plane.server.grpc).await.unwrap();
    let mut read = Vec::new();
    let closed = timeout(crate::common::DEADLINE, silent.read_to_end(&mut read)).await;
    assert!(closed.is_ok(), "still open");
    let metrics = &plane.server.core.metrics;
    eventually("no connection is left", async || metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn connection_that_answers_no_ping_is_closed() {
    let more = "timeouts: {warm_up_ms: 0, keepalive_interval_ms: 1000, keepalive_timeout_ms: 1000}";
    let plane = Plane::start(&crate::common::fleet_yaml(1), more).await;
    let mut half_open = TcpStream::connect(plane.server.grpc).await.unwrap();
    // The preface of HTTP/2 and empty settings, and then nothing any more.
    half_open.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    half_open.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut read = Vec::new();
    let closed = timeout(crate::common::DEADLINE, half_open.read_to_end(&mut read)).await;
    assert!(closed.is_ok(), "still open");
    let metrics = &plane.server.core.metrics;
    eventually("no connection is left", async || metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn stream_that_says_nothing_is_ended() {
    let more = "timeouts: {warm_up_ms: 0, hello_ms: 100}";
    let plane = Plane::start(&crate::common::fleet_yaml(1), more).await;
    let mut proxy = Proxy::open(plane.channel().await).await.unwrap();
    assert_eq!(proxy.next().await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut reporter = plane.reporter().await;
    assert_eq!(reporter.answer().await.unwrap_err().code(), Code::DeadlineExceeded);
    let metrics = &plane.server.core.metrics;
    eventually("both are counted", async || metrics.ended(StreamEnd::Silent) == 2).await;
    assert_eq!(metrics.streams(StreamKind::Watch).get(), 0);
}

#[tokio::test]
async fn feedback_before_hello_and_a_broken_hello_end_the_stream() {
    let plane = Plane::quick(1, "").await;
    let broken = v1::Hello { proxy_id: "a\nb".into(), ..v1::Hello::default() };
    for message in [feedback(1, 1, 1), v1::watch_request::Message::Hello(broken)] {
        let mut proxy = Proxy::open(plane.channel().await).await.unwrap();
        proxy.say(message).await;
        let end = proxy.next().await.unwrap_err();
        assert_eq!(end.code(), Code::InvalidArgument);
        assert!(!end.message().is_empty());
    }
    assert_eq!(plane.json("/api/fleet").await["proxies"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn hello_is_taken_as_often_as_the_burst_and_ends_the_stream_above() {
    let plane = Plane::quick(1, "limits: {feedback_per_second: 1, feedback_burst: 3}").await;
    let metrics = &plane.server.core.metrics;
    for (hellos, ended) in [(3, 0), (4, 1)] {
        let mut proxy = Proxy::open(plane.channel().await).await.unwrap();
        for nth in 0..hellos {
            proxy.say(hello(&format!("p{nth}"))).await;
        }
        if ended == 0 {
            // Each hello asks for everything anew; then come changes.
            while proxy.next().await.unwrap().unwrap().full {}
        }
        let what = format!("{hellos} hellos");
        eventually(&what, async || metrics.ended(StreamEnd::Protocol) == ended).await;
    }
}

#[tokio::test]
async fn message_of_a_newer_protocol_is_harmless() {
    let plane = Plane::quick(1, "").await;
    let channel = plane.channel().await;
    let empty = v1::WatchRequest { message: None };
    let messages = tokio_stream::iter([empty]);
    let mut client = v1::fleet_service_client::FleetServiceClient::new(channel);
    let open = tokio_stream::StreamExt::chain(messages, tokio_stream::pending());
    let mut updates = client.watch(open).await.unwrap().into_inner();
    let early = timeout(Duration::from_millis(200), updates.message()).await;
    assert!(early.is_err(), "the stream stays open: {early:?}");
}

#[tokio::test]
async fn slow_reader_loses_its_connection_and_others_go_on() {
    let more = "period_ms: 100\nlimits: {endpoints_per_service: 5000}\n\
                timeouts: {warm_up_ms: 0, slow_reader_ms: 1000, full_update_ms: 1000}";
    let mut fleet = String::from("version: 1\nservices:\n- name: llm\n  endpoints:\n");
    for i in 0..4_000 {
        fleet.push_str(&format!("  - {{address: \"10.0.{}.{}:80\"}}\n", i / 250, i % 250));
    }
    let plane = Plane::start(&fleet, more).await;
    // A window of 64 KiB that nobody empties, and updates of over 100 KiB.
    let channel = Endpoint::from_shared(format!("http://{}", plane.server.grpc))
        .unwrap()
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .connect()
        .await
        .unwrap();
    let mut slow = Proxy::open(channel).await.unwrap();
    slow.say(hello("slow")).await;
    let mut quick = plane.proxy("quick").await;
    let metrics = &plane.server.core.metrics;
    eventually("both are connected", async || metrics.streams(StreamKind::Watch).get() == 2).await;
    while metrics.ended(StreamEnd::SlowReader) == 0 {
        quick.next().await.unwrap().expect("the quick one goes on");
    }
    eventually("its connection is closed", async || metrics.connections.get() == 1).await;
    quick.next().await.unwrap().expect("the quick one still goes on");
    let names = plane.json("/api/fleet").await["proxies"].as_array().unwrap().len();
    assert_eq!(names, 1);
}

#[tokio::test]
async fn stop_ends_streams_in_good_order_within_two_seconds() {
    let plane = Plane::quick(1, "").await;
    let mut proxy = plane.proxy("p1").await;
    proxy.next().await.unwrap();
    let mut reporter = plane.reporter().await;
    reporter.report(report(1, 1)).await;
    let core = std::sync::Arc::clone(&plane.server.core);
    let (running, _folder) = plane.run();
    core.stop.cancel();
    timeout(Duration::from_secs(2), running).await.expect("in time").unwrap().unwrap();
    let end = loop {
        match proxy.next().await {
            Ok(Some(_)) => {}
            Ok(None) => break Code::Ok,
            Err(status) => break status.code(),
        }
    };
    assert_eq!(end, Code::Unavailable);
    assert_eq!(core.metrics.ended(StreamEnd::Shutdown), 2);
}

#[tokio::test]
async fn health_service_follows_readiness() {
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    let plane = Plane::start("not: good", "period_ms: 100").await;
    let mut client = HealthClient::new(plane.channel().await);
    let mut status = async |service: &str| {
        let service = service.into();
        client.check(HealthCheckRequest { service }).await.map(|r| r.into_inner().status())
    };
    eventually("health is known", async || plane.get("/healthz").await.0 == 200).await;
    let first = loop {
        if let Ok(found) = status("readiness").await {
            break found;
        }
    };
    assert_eq!(first, ServingStatus::NotServing);
    assert_eq!(status("liveness").await.unwrap(), ServingStatus::Serving);
    plane.folder.write("fleet.yaml", "version: 1\nservices: []");
    let end = tokio::time::Instant::now() + crate::common::DEADLINE;
    for name in ["readiness", "", "tidegate.v1.FleetService", "tidegate.v1.ReportService"] {
        while status(name).await.unwrap() != ServingStatus::Serving {
            assert!(tokio::time::Instant::now() < end, "{name} never served");
        }
    }
}
