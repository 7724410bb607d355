//! Header values are bytes: what is no UTF-8, or very long, or very many, traps nothing.

use anyhow::{Context, ensure};
use tidegate_tests::client::raw;
use tidegate_tests::tools_or_skip;

use super::common::{scripted, steered};

/// Header lines that are unpleasant and allowed.
fn lines() -> Vec<Vec<u8>> {
    let names = [
        "x-any",
        "x-tidegate-priority",
        "x-request-id",
        "x-envoy-retry-on",
        "user-agent",
        "content-type",
        "x-gateway-destination-endpoint",
        "retry-after",
    ];
    let long = vec![0xe9; 8_192];
    let values: [&[u8]; 6] =
        [b"\xff\xfe\xfd", b"\xc3\x28", b"\xed\xa0\x80", b"caf\xe9", b"", &long];
    let mut lines = Vec::new();
    for name in names {
        for value in values {
            lines.push([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
    }
    lines.push((0..80).flat_map(|i| format!("x-{i}: \u{e9}\r\n").into_bytes()).collect());
    lines
}

#[tokio::test]
async fn header_values_that_are_no_text_trap_nothing() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, _fake) = scripted(&tools, "header-bytes", 2, |builder| builder).await?;
    let mut sent = 0;
    for path in ["/v1/echo", "/v1/%ff%fe"] {
        for line in lines() {
            let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
            let request = [head.as_bytes(), &line, b"\r\n"].concat();
            let answer = raw(rig.envoy().address, &request).await?;
            let status = answer.get(9..12).context("no answer")?;
            ensure!(status == b"200", "{path} {}", String::from_utf8_lossy(&line));
            sent += 1;
        }
    }
    assert_eq!(steered(&rig).await?, f64::from(sent), "each was steered");
    let log = rig.envoy().process.output();
    ensure!(!log.contains("panicked") && !log.contains("RuntimeError"), "a VM trapped:\n{log}");
    Ok(())
}
