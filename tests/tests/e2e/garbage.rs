//! Garbage and huge messages from the control plane change nothing: decoding is total, the last good
//! fleet stays in force, and the filter comes back for more.

use std::net::SocketAddr;

use anyhow::ensure;
use bytes::Bytes;
use prost::Message;
use tidegate_proto::v1::{Endpoint, FleetUpdate};
use tidegate_tests::{tools_or_skip, until};

use super::common::{SOON, apply, only, scripted, steered};

const HUGE_BYTES: usize = 8 << 20;
/// Far above any epoch that is said in this test.
const LATE: u64 = 1_000_000;

/// Updates that are wrong in meaning.
fn hostile(all: &[SocketAddr]) -> Vec<(&'static str, FleetUpdate)> {
    let base = only(LATE, all, &all[..1]);
    let with = |change: &dyn Fn(&mut Vec<Endpoint>)| {
        let mut update = base.clone();
        change(&mut update.services[0].endpoints);
        update
    };
    let numbers = with(&|endpoints| {
        for endpoint in endpoints {
            endpoint.weight = u32::MAX;
            endpoint.in_flight = Some(u32::MAX);
            endpoint.slots = Some(u32::MAX);
            endpoint.success_bp = Some(u32::MAX);
            endpoint.age_ms = Some(u32::MAX);
        }
    });
    let crowd = with(&|endpoints| {
        let one = endpoints[0].clone();
        endpoints.extend((0..50_000).map(|i| Endpoint {
            address: format!("10.{}.{}.{}:80", i / 65_536, i / 256 % 256, i % 256),
            ..one.clone()
        }));
    });
    let name = with(&|endpoints| endpoints[0].address = "9".repeat(100_000));
    let twice = with(&|endpoints| endpoints.push(endpoints[0].clone()));
    let mut not_a_number = base.clone();
    not_a_number.services[0].arrival_rate = Some(f64::NAN);
    not_a_number.services[0].mean_service_ms = Some(u32::MAX);
    vec![
        ("numbers out of range", numbers),
        ("50,000 endpoints", crowd),
        ("a name of 100 kB", name),
        ("an endpoint twice", twice),
        ("not a number", not_a_number),
    ]
}

/// Bytes that are no update.
fn nonsense(update: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("nothing", Vec::new()),
        ("ones", vec![0xff; 64]),
        ("zeros", vec![0; 4_096]),
        ("a length past the end", vec![0x32, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("8 MiB", vec![0x55; HUGE_BYTES]),
        ("half an update", update[..update.len() / 2].to_vec()),
    ]
}

#[tokio::test]
async fn nonsense_leaves_the_last_good_fleet_in_force() -> anyhow::Result<()> {
    let tools = tools_or_skip!();
    let (rig, fake) = scripted(&tools, "garbage", 3, |builder| builder).await?;
    let all = rig.models.addresses();
    let good = only(1, &all, &all[..1]);
    apply(&rig, &fake, good.clone()).await?;
    let load = rig.load(80.0).work_ms(5.0).start();

    let mut messages = nonsense(&good.encode_to_vec());
    messages.extend(hostile(&all).into_iter().map(|(what, one)| (what, one.encode_to_vec())));
    let count = messages.len();
    let mut refused = 0;
    for (what, message) in messages {
        let stats = rig.envoy().stats().await?;
        let before = |name: &str| stats.tidegate(name, &[]);
        let (errors, updates) =
            (before("tidegate_decode_errors_total"), before("tidegate_updates_total"));
        fake.say_message(&message);
        // Either it is refused, or it and what follows are taken.
        until(SOON, what, async || {
            let stats = rig.envoy().stats().await?;
            let is_refused = stats.tidegate("tidegate_decode_errors_total", &[]) > errors;
            Ok(is_refused || stats.tidegate("tidegate_updates_total", &[]) >= updates + 3.0)
        })
        .await?;
        let stats = rig.envoy().stats().await?;
        refused += usize::from(stats.tidegate("tidegate_decode_errors_total", &[]) > errors);
        // A stream is open again before the next message.
        until(2 * SOON, "the filter listens again", async || {
            let stats = rig.envoy().stats().await?;
            Ok(fake.open() == 1 && stats.tidegate("tidegate_stream_state", &[]) == 2.0)
        })
        .await?;
    }
    ensure!(refused >= 7, "only {refused} of {count} messages were refused");

    // A frame that breaks the protocol.
    let opened = fake.opened();
    fake.say_bytes(Bytes::from_static(b"\x07\xff\xff\xff\xff not a frame"));
    until(2 * SOON, "the filter opens a new stream", async || {
        Ok(fake.opened() > opened && fake.open() == 1)
    })
    .await?;

    let before = steered(&rig).await?;
    until(SOON, "requests are steered", async || Ok(steered(&rig).await? > before)).await?;
    let summary = load.stop().await;
    assert_eq!(summary.failures(), Vec::<String>::new());
    // Left to itself, Envoy spreads over all three.
    let by_server = summary.by_server();
    assert_eq!(by_server.keys().copied().collect::<Vec<_>>(), [all[0]], "{by_server:?}");
    let log = rig.envoy().process.output();
    ensure!(!log.contains("panicked") && !log.contains("RuntimeError"), "a VM trapped:\n{log}");
    Ok(())
}
