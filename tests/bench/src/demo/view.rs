//! What the demo shows: one frame from numbers, and a screen that redraws it in place on a terminal or, where output is
//! no terminal, prints a line now and then. Frames are pure.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::demo::timeline::Event;
use crate::form::{Cell, Row, rounded, table};

/// One GPU, as the driver and the control plane report it, and what each side sends to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuLine {
    pub name: String,
    pub kind: String,
    pub load_ratio: Option<f64>,
    pub temperature_c: Option<f64>,
    pub weight: Option<f64>,
    /// Why it gets less or nothing; empty when it is well.
    pub note: String,
    pub share_tidegate: Option<f64>,
    pub share_envoy: Option<f64>,
}

/// One side so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SideLine {
    pub name: &'static str,
    pub requests: usize,
    pub success_ratio: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub ttft_p99_ms: Option<f64>,
}

/// All that is shown at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frame {
    pub elapsed: Duration,
    pub run: Duration,
    pub rate_per_s: f64,
    pub gpus: Vec<GpuLine>,
    pub sides: Vec<SideLine>,
    pub happened: Vec<Event>,
}

impl Frame {
    pub fn render(&self) -> String {
        let mut out = format!(
            "Tidegate demo  {:>3.0} of {:.0} s  {:.0} requests/s to each side\n\n{}\n\n{}\n",
            self.elapsed.as_secs_f64(),
            self.run.as_secs_f64(),
            self.rate_per_s,
            table(&self.gpus.iter().map(GpuLine::row).collect::<Vec<_>>()),
            sides_table(&self.sides),
        );
        for event in Event::ALL {
            let mark = if self.happened.contains(&event) { '*' } else { '.' };
            let _ = write!(
                out,
                "\n  {mark} {:>5.1} s  {}",
                event.at(self.run).as_secs_f64(),
                event.said()
            );
        }
        out.push('\n');
        out
    }

    /// The frame in one line, for logs.
    pub fn line(&self) -> String {
        let mut out = format!("{:>5.1} s", self.elapsed.as_secs_f64());
        for side in &self.sides {
            let _ = write!(
                out,
                "  {}: {} requests, {} good, P50 {}, P99 {}",
                side.name,
                side.requests,
                percent(side.success_ratio),
                seconds(side.p50_ms),
                seconds(side.p99_ms)
            );
        }
        out
    }
}

impl GpuLine {
    fn row(&self) -> Row {
        Row::new()
            .with("gpu", self.name.as_str())
            .with("type", self.kind.as_str())
            .with(
                "load",
                self.load_ratio.map_or("-".to_owned(), |load| format!("{:.0} %", load * 100.0)),
            )
            .with("°C", self.temperature_c.map_or("-".to_owned(), |t| format!("{t:.0}")))
            .with("weight", self.weight)
            .with("share Tidegate", bar(self.share_tidegate))
            .with("share Envoy", bar(self.share_envoy))
            .with("state", self.note.as_str())
    }
}

pub fn sides_table(sides: &[SideLine]) -> comfy_table::Table {
    let rows: Vec<Row> = sides
        .iter()
        .map(|side| {
            Row::new()
                .with("side", side.name)
                .with("requests", side.requests)
                .with("success", percent(side.success_ratio))
                .with("P50", seconds(side.p50_ms))
                .with("P99", seconds(side.p99_ms))
                .with("first token P99", seconds(side.ttft_p99_ms))
        })
        .collect();
    table(&rows)
}

fn percent(ratio: Option<f64>) -> String {
    // Cut, not rounded: 100 % is said of a run without a failure only.
    ratio.map_or("-".to_owned(), |ratio| format!("{:.2} %", (ratio * 10_000.0).floor() / 100.0))
}

fn seconds(ms: Option<f64>) -> Cell {
    ms.map_or(Cell::None, |ms| Cell::Text(format!("{} s", rounded(ms / 1_000.0))))
}

/// A share as a number with a bar, 20 characters for all of it.
fn bar(ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else { return "-".to_owned() };
    let length = (ratio.clamp(0.0, 1.0) * 20.0).round() as usize;
    format!("{:>3.0} % {:<8}", ratio * 100.0, "#".repeat(length))
}

impl std::fmt::Display for Cell {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.shown())
    }
}

/// How often a line is printed where the frame cannot be redrawn.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Where frames go.
#[derive(Debug)]
pub struct Screen {
    mode: Mode,
    lines_drawn: usize,
    last_line: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Silent,
    Redraw,
    Lines,
}

impl Screen {
    pub fn new(is_silent: bool) -> Self {
        let mode = match (is_silent, std::io::stdout().is_terminal()) {
            (true, _) => Mode::Silent,
            (false, true) => Mode::Redraw,
            (false, false) => Mode::Lines,
        };
        Self { mode, lines_drawn: 0, last_line: None }
    }

    pub fn show(&mut self, frame: &Frame) {
        match self.mode {
            Mode::Silent => {}
            Mode::Redraw => {
                let text = frame.render();
                // Up to the first line of the last frame, then clear from there on.
                let back = if self.lines_drawn > 0 {
                    format!("\x1b[{}A\x1b[J", self.lines_drawn)
                } else {
                    String::new()
                };
                self.lines_drawn = text.lines().count();
                let mut out = std::io::stdout().lock();
                let _ = write!(out, "{back}{text}");
                let _ = out.flush();
            }
            Mode::Lines => {
                if self.last_line.is_none_or(|last| frame.elapsed >= last + LINE_EVERY) {
                    self.last_line = Some(frame.elapsed);
                    println!("{}", frame.line());
                }
            }
        }
    }

    /// An event, where frames do not tell it.
    pub fn tell(&self, elapsed: Duration, what: &str) {
        if self.mode == Mode::Lines {
            println!("{:>5.1} s  * {what}", elapsed.as_secs_f64());
        }
    }

    /// Text for a person; nothing where only the final object may be printed.
    pub fn say(&self, text: &str) {
        if self.mode != Mode::Silent {
            println!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame {
            elapsed: Duration::from_secs(25),
            run: Duration::from_secs(60),
            rate_per_s: 27.8,
            gpus: vec![GpuLine {
                name: "node-b/1".to_owned(),
                kind: "L4".to_owned(),
                load_ratio: Some(0.5),
                temperature_c: Some(61.4),
                weight: None,
                note: "xid 79".to_owned(),
                share_tidegate: Some(0.25),
                share_envoy: None,
            }],
            sides: vec![SideLine {
                name: "Tidegate",
                requests: 100,
                success_ratio: Some(0.9999),
                p50_ms: Some(812.34),
                p99_ms: None,
                ttft_p99_ms: None,
            }],
            happened: vec![Event::Spike],
        }
    }

    #[test]
    fn frame_shows_numbers_with_units_and_unknown_as_a_dash() {
        let text = frame().render();
        for part in [
            "25 of 60 s",
            "61",
            "25 % #####",
            "99.99 %",
            "0.8123 s",
            "xid 79",
            "*   9.0 s",
            ".  24.0 s",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        let gpu = text.lines().find(|line| line.contains("node-b/1")).expect("a line for the GPU");
        assert!(gpu.contains(" - "), "{gpu}");
    }

    #[test]
    fn line_names_each_side_once() {
        assert_eq!(
            frame().line(),
            " 25.0 s  Tidegate: 100 requests, 99.99 % good, P50 0.8123 s, P99 -"
        );
    }
}
