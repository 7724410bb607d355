//! `tidegate status`: the fleet at a glance.

use std::io::Write;

use super::{
    AskArgs, Outcome, client,
    output::{Cell, Colours, Table, Tone, print_value},
};
use crate::{
    admin::view::{EndpointView, FleetView, NodeState, NodeView, ProxyView, ServiceView},
    text::short,
};

pub(super) fn run(args: &AskArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let fleet: FleetView = client::ask(args, "/api/fleet")?;
    if !print_value(&args.output, &fleet, out)? {
        print(&fleet, out, Colours::of(&args.output))?;
    }
    Ok(if troubles(&fleet).is_empty() { Outcome::Well } else { Outcome::Degraded })
}

/// What makes the fleet degraded, in words.
fn troubles(fleet: &FleetView) -> Vec<String> {
    let mut all: Vec<String> =
        fleet.not_ready.iter().map(|reason| format!("not ready: {reason}")).collect();
    if !fleet.discovery.current {
        let errors = fleet.discovery.errors.iter();
        all.extend(errors.map(|e| format!("discovery file refused: {e}")));
    }
    all.extend(fleet.alarms.iter().map(|a| format!("{}: {}", a.kind, a.about)));
    for service in &fleet.services {
        if !service.endpoints.iter().any(takes_requests) {
            all.push(format!("{}: no endpoint takes requests", service.name));
        }
    }
    for proxy in &fleet.proxies {
        if let Some(error) = &proxy.config_error {
            all.push(format!("{}: configuration refused: {error}", proxy.proxy_id));
        }
    }
    all
}

fn takes_requests(e: &EndpointView) -> bool {
    e.hard == "up" && e.gate > 0.0
}

fn print(fleet: &FleetView, out: &mut dyn Write, colours: Colours) -> std::io::Result<()> {
    let rate =
        fleet.services.iter().filter_map(|s| s.arrival_rate).fold(0.0, |sum, rate| sum + rate);
    writeln!(
        out,
        "tidegate {}  instance {}  epoch {}  period {} ms  up {}  {rate:.1} requests/s",
        fleet.version,
        fleet.instance,
        fleet.epoch,
        fleet.period_ms,
        span(fleet.uptime_ms),
    )?;
    for trouble in troubles(fleet) {
        writeln!(out, "{}", colours.paint(&format!("! {trouble}"), Tone::Bad))?;
    }
    writeln!(out)?;
    endpoints(&fleet.services).print(out, colours)?;
    writeln!(out)?;
    nodes(&fleet.nodes).print(out, colours)?;
    writeln!(out)?;
    proxies(&fleet.proxies).print(out, colours)
}

fn endpoints(services: &[ServiceView]) -> Table<11> {
    let mut table = Table::new([
        "SERVICE",
        "ENDPOINT",
        "GPU",
        "WEIGHT",
        "SHARE",
        "GATE",
        "IN FLIGHT",
        "SLOTS",
        "AGE",
        "NODE",
        "WHY",
    ]);
    for service in services {
        for e in &service.endpoints {
            table.row([
                service.name.as_str().into(),
                e.address.as_str().into(),
                gpu(e).into(),
                e.weight.to_string().into(),
                format!("{:.1}%", e.traffic_share * 100.0).into(),
                gate(e),
                number(e.in_flight).into(),
                number(e.slots).into(),
                e.age_ms.map_or_else(|| "-".into(), span).into(),
                e.node.as_deref().unwrap_or("-").into(),
                why(e).into(),
            ]);
        }
    }
    table
}

fn nodes(nodes: &[NodeView]) -> Table<7> {
    let mut table = Table::new(["NODE", "STATE", "AGE", "DRIVER", "GPUS", "REPORTS", "REPORTER"]);
    for n in nodes {
        let tone = match n.state {
            NodeState::Reporting => Tone::Good,
            NodeState::Left => Tone::Plain,
            NodeState::Silent | NodeState::Disconnected => Tone::Warning,
        };
        let name =
            if n.part.is_empty() { n.node.clone() } else { format!("{}/{}", n.node, n.part) };
        let well = n.gpus.iter().filter(|g| g.state == "ok").count();
        table.row([
            name.into(),
            Cell::toned(n.state.as_str(), tone),
            span(n.age_ms).into(),
            format!("{} {}", n.driver, n.driver_version).trim_end().into(),
            format!("{well}/{} ok", n.gpus_expected.map_or(n.gpus.len(), to_usize)).into(),
            format!("{} taken, {} refused", n.accepted, n.refused).into(),
            n.reporter_version.as_str().into(),
        ]);
    }
    table
}

fn proxies(proxies: &[ProxyView]) -> Table<7> {
    let mut table =
        Table::new(["PROXY", "CONFIG", "RUNG", "IN FLIGHT", "HEARD", "FILTER", "SERVICES"]);
    for p in proxies {
        let tone = if p.config == "ok" { Tone::Good } else { Tone::Warning };
        table.row([
            p.proxy_id.as_str().into(),
            Cell::toned(p.config.as_str(), tone),
            p.rung.to_string().into(),
            p.in_flight.to_string().into(),
            span(p.heard_ms).into(),
            p.filter_version.as_str().into(),
            if p.services.is_empty() { "all".into() } else { p.services.join(",").into() },
        ]);
    }
    table
}

fn gpu(e: &EndpointView) -> String {
    let kind = e.gpu_type.as_deref().unwrap_or("-").trim_start_matches("NVIDIA ");
    if e.gpus.is_empty() { kind.into() } else { format!("{kind} #{}", e.gpus.join(",")) }
}

fn gate(e: &EndpointView) -> Cell {
    if e.hard != "up" {
        return Cell::toned(e.hard.as_str(), Tone::Bad);
    }
    let tone = match e.gate {
        g if g >= 1.0 => Tone::Good,
        g if g > 0.0 => Tone::Warning,
        _ => Tone::Bad,
    };
    Cell::toned(format!("{:.2}", e.gate), tone)
}

/// What lowers the gate, the worst first.
fn why(e: &EndpointView) -> String {
    let mut reasons: Vec<_> = e.reasons.iter().collect();
    reasons.sort_by(|a, b| a.value.total_cmp(&b.value));
    let mut words: Vec<String> = reasons
        .iter()
        .map(|r| match r.measured {
            Some(measured) => format!("{} ({})", r.reason, short(measured)),
            None => r.reason.clone(),
        })
        .collect();
    words.extend(e.held.iter().map(|h| format!("held: {h}")));
    words.join(", ")
}

fn number(value: Option<u32>) -> String {
    value.map_or_else(|| "-".into(), |v| v.to_string())
}

fn to_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A span as people read it: 350ms, 4.2s, 12m, 3h.
fn span(ms: u64) -> String {
    let tenths = ms / 100;
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", tenths / 10, tenths % 10),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests;
