//! Garbage and huge messages from the control plane change nothing: decoding is total, the last good
//! fleet stays in force.

use anyhow::{Context, ensure};
use bytes::Bytes;
use prost::Message;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidegate_tests::fake_control_plane::full_update;
use tidegate_tests::{tools_or_skip, until};

use super::common::{SOON, apply, only, scripted, steered};

const HUGE_BYTES: usize = 8 << 20;

/// Messages that no control plane should send.
fn nonsense(update: &[u8]) -> Vec<Vec<u8>> {
    let mut chance = StdRng::seed_from_u64(1);
    let mut all: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0xff; 64],
        vec![0; 4_096],
        // A length that runs past the end.
        vec![0x32, 0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0x55; HUGE_BYTES],
    ];
    for cut in (1..update.len()).step_by(update.len() / 40 + 1) {
        all.push(update[..cut].to_vec());
    }
    for _ in 0..100 {
        let mut bent = update.to_vec();
        for _ in 0..4 {
            let at = chance.random_range(0..bent.len());
            bent[at] = chance.random();
        }
        all.push(bent);
    }
    all
}

#[tokio::test]
async fn nonsense_leaves_the_last_good_fleet_in_force() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, fake) = scripted(&tools, "garbage", 3, |builder| builder).await?;
    let all = rig.models.addresses();
    let load = rig.load(80.0).work_ms(5.0).start();
    // From here on nothing good comes: what was last heard must do.
    let epoch = fake.release().context("nothing was held")?.epoch;
    for message in nonsense(&full_update(epoch + 1, "llm", &all).encode_to_vec()) {
        fake.say_message(&message);
    }
    let errors = async || -> anyhow::Result<f64> {
        Ok(rig.envoy().stats().await?.tidegate("tidegate_decode_errors_total", &[]))
    };
    until(SOON, "messages are refused", async || Ok(errors().await? >= 3.0)).await?;
    // Hostile in meaning: thousands of endpoints, names without end, numbers out of range.
    let mut hostile = full_update(epoch + 2, "llm", &all);
    if let Some(service) = hostile.services.first_mut() {
        service.arrival_rate = Some(f64::NAN);
        service.mean_service_ms = Some(u32::MAX);
        for endpoint in &mut service.endpoints {
            endpoint.weight = u32::MAX;
            endpoint.gate_pm = u32::MAX;
            endpoint.in_flight = Some(u32::MAX);
            endpoint.slots = Some(u32::MAX);
            endpoint.hard = 77;
        }
        let one = service.endpoints[0].clone();
        for index in 0..50_000 {
            let address = format!("10.{}.{}.{}:80", index / 65_536, index / 256 % 256, index % 256);
            service.endpoints.push(tidegate_proto::v1::Endpoint { address, ..one.clone() });
        }
        let address = "9".repeat(100_000);
        service.endpoints.push(tidegate_proto::v1::Endpoint { address, ..one });
    }
    fake.say(&hostile);
    // A frame that breaks the protocol ends the stream; the filter comes back.
    let opened = fake.opened();
    fake.say_bytes(Bytes::from_static(b"\x07\xff\xff\xff\xff not a frame"));
    until(2 * SOON, "the filter opens a new stream", async || {
        Ok(fake.opened() > opened && fake.open() == 1)
    })
    .await?;
    let summary = load.stop().await;
    assert_eq!(summary.failures(), Vec::<String>::new());
    // It still listens and obeys.
    apply(&rig, &fake, only(1_000, &all, &all[..1])).await?;
    let before = steered(&rig).await?;
    for _ in 0..50 {
        let reply = rig.client.chat(rig.envoy().address, 1.0).await?;
        assert_eq!((reply.status, reply.served_by()), (200, Some(all[0])));
    }
    assert_eq!(steered(&rig).await? - before, 50.0);
    let log = rig.envoy().process.output();
    ensure!(!log.contains("panicked") && !log.contains("RuntimeError"), "a VM trapped:\n{log}");
    Ok(())
}
