//! `tidegate explain ENDPOINT`: each factor of a weight as a number.

use std::io::Write;

use super::{
    AskArgs, Outcome, client,
    output::{Colours, Table, Tone, print_value},
};
use crate::{
    admin::explain::{ExplainView, ServiceExplanation},
    text::short,
};

pub(super) fn run(endpoint: &str, args: &AskArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let explained: ExplainView =
        client::ask(args, &format!("/api/explain?endpoint={}", in_query(endpoint)))?;
    if !print_value(&args.output, &explained, out)? {
        for explanation in &explained.explanations {
            print(&explained.endpoint, explanation, out, Colours::of(&args.output))?;
        }
    }
    Ok(Outcome::Well)
}

fn print(
    endpoint: &str,
    explanation: &ServiceExplanation,
    out: &mut dyn Write,
    colours: Colours,
) -> std::io::Result<()> {
    let state = &explanation.state;
    writeln!(
        out,
        "{endpoint} of {}: weight {}, gate {:.2}, {}, {:.1}% of the traffic",
        explanation.service,
        state.weight,
        state.gate,
        state.hard,
        state.traffic_share * 100.0,
    )?;
    let known = |value: Option<u32>| value.map_or_else(|| "unknown".into(), |v| v.to_string());
    writeln!(
        out,
        "in flight {}, slots {}, node {}, data age {}",
        known(state.in_flight),
        known(state.slots),
        state.node.as_deref().unwrap_or("unknown"),
        state.age_ms.map_or_else(|| "unknown".into(), |ms| format!("{ms} ms")),
    )?;
    for reason in &explanation.reasons {
        writeln!(out, "{}", colours.paint(&format!("! {reason}"), Tone::Warning))?;
    }
    writeln!(out)?;
    let mut table = Table::new(["FACTOR", "VALUE"]);
    for factor in &explanation.factors {
        table.row([factor.name.as_str().into(), short(factor.value).into()]);
    }
    table.print(out, colours)
}

/// The text as it may stand in a query.
fn in_query(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b':' | b'-' | b'_' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_is_safe_in_a_query() {
        assert_eq!(in_query("127.0.0.1:8001"), "127.0.0.1:8001");
        assert_eq!(in_query("[::1]:1&x=é"), "%5B::1%5D:1%26x%3D%C3%A9");
    }
}
