//! The binary: what it prints and how it ends.

use std::{
    net::SocketAddr,
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::common::{Folder, Plane, eventually, report};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Runs it while this process goes on serving.
async fn run_against(plane: &Plane, args: &[&str]) -> (i32, String, String) {
    let admin = format!("http://{}", plane.server.admin);
    let args: Vec<String> =
        args.iter().map(|a| (*a).to_owned()).chain(["--admin".into(), admin]).collect();
    tokio::task::spawn_blocking(move || run(&args.iter().map(String::as_str).collect::<Vec<_>>()))
        .await
        .unwrap()
}

#[test]
fn wrong_usage_ends_with_two() {
    for args in [
        &[][..],
        &["nothing"],
        &["serve"],
        &["check"],
        &["status", "--output", "xml"],
        &["explain"],
        &["status", "--timeout-ms", "0"],
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(!err.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_version_end_with_zero() {
    for args in [&["--help"][..], &["--version"], &["version"], &["help", "status"]] {
        assert_eq!(run(args).0, 0, "{args:?}");
    }
    assert_eq!(run(&["version"]).1, format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
    let version: Value = serde_json::from_str(&run(&["version", "-o", "json"]).1).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(run(&["version", "-o", "yaml"]).1.contains("name: tidegate"));
}

#[test]
fn check_names_every_error_and_ends_with_one() {
    let folder = Folder::new();
    let good = folder.write("good.yaml", "version: 1\ndiscovery: {file: fleet.yaml}\n");
    let bad = folder.write(
        "bad.yaml",
        "version: 1\nperiod_ms: 20\nperiodms: 7\nlisten: {grpc: nowhere}\ndiscovery: {poll_ms: 1}\n",
    );
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    assert_eq!(
        run(&["check", "-f", good]),
        (0, format!("{good}: ok (control-plane)\n"), "".into())
    );
    let expected = format!(
        "{bad}: listen.grpc: \"nowhere\" is outside an address ip:port\n\
         {bad}: period_ms: 20 is outside 100..=5000\n\
         {bad}: discovery.file: is missing; expected text of 1..=4096 bytes\n\
         {bad}: discovery.poll_ms: 1 is outside 50..=60000\n\
         {bad}: periodms: is not a known key; did you mean `period_ms`\n\
         {bad}: 5 errors (control-plane)\n"
    );
    assert_eq!(run(&["check", "-f", bad]), (1, expected, "".into()));
    let (code, out, _) = run(&["check", "-f", bad, "-o", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report["errors"].as_array().unwrap().len()), (1, 5));
    assert_eq!(report["kind"], "control-plane");
    let (code, _, _) = run(&["check", "-f", good, "--kind", "fleet"]);
    assert_eq!(code, 1, "a named kind is believed");
    let (code, _, err) = run(&["check", "-f", "/nowhere.yaml"]);
    assert_eq!(code, 1);
    assert!(err.contains("/nowhere.yaml"), "{err}");
}

#[test]
fn control_plane_that_is_not_there_ends_with_three() {
    for args in [
        &["status", "--admin", "http://127.0.0.1:1"][..],
        &["explain", "127.0.0.1:8001", "--admin", "http://127.0.0.1:1"],
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains("cannot be reached"), "{err}");
    }
    let (code, _, err) = run(&["status", "--admin", "ftp://x"]);
    assert_eq!(code, 1, "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_of_a_well_fleet_ends_with_zero_and_of_a_degraded_one_with_three() {
    let plane = Plane::quick(2, "").await;
    let mut proxy = plane.proxy("envoy-1").await;
    let mut reporter = plane.reporter().await;
    reporter.report(report(1, 2)).await;
    proxy.until(|e| e.age_ms.is_some()).await;
    let (code, out, err) = run_against(&plane, &["status"]).await;
    assert_eq!(code, 0, "{out}{err}");
    for expected in ["ENDPOINT", "127.0.0.1:8002", "A100-SXM4-80GB #1", "node-a", "envoy-1"] {
        assert!(out.contains(expected), "{expected} in {out}");
    }
    assert!(!out.contains('\u{1b}'), "no colours into a pipe");
    let (code, out, _) = run_against(&plane, &["status", "-o", "json"]).await;
    let fleet: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &fleet["ready"]), (0, &true.into()));
    let (code, out, _) = run_against(&plane, &["status", "-o", "yaml"]).await;
    assert_eq!((code, out.contains("ready: true")), (0, true), "{out}");
    plane.folder.write("fleet.yaml", "version: 1\nservices: 1");
    eventually("the file is refused", async || {
        plane.json("/api/fleet").await["discovery"]["current"] == false
    })
    .await;
    let (code, out, _) = run_against(&plane, &["status"]).await;
    assert_eq!(code, 3);
    assert!(out.contains("! discovery file refused: services: 1 is not list"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_prints_factors_and_refuses_what_is_unknown() {
    let plane = Plane::quick(1, "").await;
    let mut reporter = plane.reporter().await;
    reporter.report(report(1, 1)).await;
    plane.proxy("p1").await.until(|e| e.age_ms.is_some()).await;
    let (code, out, err) = run_against(&plane, &["explain", "127.0.0.1:8001"]).await;
    assert_eq!(code, 0, "{err}");
    for expected in ["127.0.0.1:8001 of llm: weight ", "FACTOR", "capacity.used", "share.used"] {
        assert!(out.contains(expected), "{expected} in {out}");
    }
    let (code, out, err) = run_against(&plane, &["explain", "9.9.9.9:9"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("\"9.9.9.9:9\" is not in discovery"), "{err}");
}

#[test]
fn serve_refuses_a_bad_configuration_with_every_error() {
    let folder = Folder::new();
    let file = folder.write("cp.yaml", "version: 1\nperiod_ms: 1\ndiscovery: {}");
    let (code, out, err) = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("period_ms: 1 is outside 100..=5000"), "{err}");
    assert!(err.contains("discovery.file: is missing"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_runs_until_it_is_told_to_stop_and_ends_with_zero() {
    let folder = Folder::new();
    folder.write("fleet.yaml", &crate::common::fleet_yaml(1));
    let (grpc, admin) = (free_port(), free_port());
    let yaml = format!(
        "version: 1\nlisten: {{grpc: \"{grpc}\", admin: \"{admin}\"}}\ndiscovery: {{file: fleet.yaml}}\n\
         timeouts: {{warm_up_ms: 0}}"
    );
    let file = folder.write("cp.yaml", &yaml);
    for signal in ["TERM", "INT"] {
        let child = command(&["serve", "--config", file.to_str().unwrap(), "--log-format", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("it listens", async || tokio::net::TcpStream::connect(admin).await.is_ok())
            .await;
        eventually("it is ready", async || crate::common::get(admin, "/readyz").await.0 == 200)
            .await;
        // The address is taken now.
        let path = file.to_str().unwrap().to_owned();
        let second =
            tokio::task::spawn_blocking(move || run(&["serve", "--config", &path])).await.unwrap();
        assert_eq!(second.0, 1);
        assert!(second.2.contains(&format!("listen.grpc: {grpc}: ")), "{}", second.2);
        let told = std::time::Instant::now();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let output =
            tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
        assert!(told.elapsed() < Duration::from_secs(2), "{signal}: {:?}", told.elapsed());
        assert_eq!(output.status.code(), Some(0), "{signal}");
        let log = String::from_utf8(output.stderr).unwrap();
        for line in log.lines() {
            assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
        }
        assert!(log.contains("told to stop"), "{log}");
    }
}

/// An address that was free a moment ago.
fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
