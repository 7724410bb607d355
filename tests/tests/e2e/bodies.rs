//! Streams arrive piece by piece, and large bodies pass untouched both ways.

use std::time::Duration;

use anyhow::ensure;
use tidegate_tests::tools_or_skip;

use super::common::scripted;

const LARGE_BYTES: usize = 5 << 20;

/// The bytes that the model server sends, and that we send it.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

fn fnv1a(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[tokio::test]
async fn streams_come_piece_by_piece_and_large_bodies_untouched() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, _fake) = scripted(&tools, "bodies", 2, |builder| builder).await?;
    let to = rig.envoy().address;

    // 16 tokens over 1,600 ms of work: one each 100 ms.
    let reply = rig.client.chat_stream(to, 1_600.0).await?;
    ensure!(reply.status == 200 && reply.is_whole && reply.text().contains("[DONE]"));
    let first = reply.first_byte.unwrap_or(reply.elapsed);
    ensure!(first < Duration::from_millis(500), "the first token came after {first:?}");
    ensure!(reply.elapsed > Duration::from_millis(1_400), "{:?}", reply.elapsed);
    ensure!(reply.pieces.len() >= 12, "{} pieces: {:?}", reply.pieces.len(), reply.pieces);

    let sent = pattern(LARGE_BYTES);
    let up = rig.client.post(&format!("http://{to}/v1/echo"), sent.clone()).await?.json()?;
    assert_eq!(up["body_bytes"], LARGE_BYTES);
    assert_eq!(up["body_fnv1a"], fnv1a(&sent));

    let down = rig.client.get(&format!("http://{to}/v1/bytes/{LARGE_BYTES}")).await?;
    ensure!(down.status == 200 && down.is_whole);
    ensure!(down.body == sent, "{} bytes came, not the same", down.body.len());
    Ok(())
}
