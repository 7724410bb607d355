//! `--once`: one sample for a person or a script, and an exit code.
//!
//! The same threads run as in the daemon, so what is printed is what would be reported. Two rounds are
//! awaited, because rates need two readings; a driver that hangs ends the wait with what is known.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};

use crate::{
    sample::{DriverStatus, Gpu, GpuState, Snapshot},
    shared::Shared,
};

/// Longest wait for a sample.
const WAIT_MAX: Duration = Duration::from_secs(15);

pub const EXIT_FINE: i32 = 0;
pub const EXIT_TROUBLE: i32 = 1;
pub const EXIT_NO_DRIVER: i32 = 3;

/// Waits until two rounds are done or it is clear that there will be none.
pub async fn wait(shared: &Shared) {
    let until = Instant::now() + WAIT_MAX;
    while Instant::now() < until {
        let status = shared.board.driver().status;
        match status {
            DriverStatus::Unknown => {}
            DriverStatus::Ok if shared.board.rounds() < 2 => {}
            DriverStatus::Ok
            | DriverStatus::Absent
            | DriverStatus::Mismatch
            | DriverStatus::Hung
            | DriverStatus::Failed => return,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the sample means for a script.
#[must_use]
pub fn exit_code(snapshot: &Snapshot) -> i32 {
    match snapshot.driver.status {
        DriverStatus::Absent => return EXIT_NO_DRIVER,
        DriverStatus::Mismatch
        | DriverStatus::Hung
        | DriverStatus::Failed
        | DriverStatus::Unknown => return EXIT_TROUBLE,
        DriverStatus::Ok => {}
    }
    let all_there = snapshot.gpus.iter().all(|gpu| gpu.state == GpuState::Ok);
    let count = u32::try_from(snapshot.gpus.len()).unwrap_or(u32::MAX);
    let enough = snapshot.driver.gpus_expected.is_none_or(|expected| count >= expected);
    if all_there && enough { EXIT_FINE } else { EXIT_TROUBLE }
}

/// What to tell a person on stderr when there is nothing to show.
#[must_use]
pub fn trouble(snapshot: &Snapshot) -> Option<String> {
    let detail = &snapshot.driver.detail;
    match snapshot.driver.status {
        DriverStatus::Ok => None,
        DriverStatus::Absent => Some(format!(
            "no NVIDIA driver on this node: {detail}\n\
             If there is one, name its library with --nvml-lib; in a container, check that the NVIDIA \
             runtime provides the `utility` capability."
        )),
        DriverStatus::Mismatch => Some(format!(
            "the driver library does not match the loaded kernel module: {detail}\n\
             Usual after a driver upgrade: restart this container, or reboot the node."
        )),
        DriverStatus::Hung => Some(format!("the driver does not answer: {detail}")),
        DriverStatus::Failed => Some(format!("the driver fails: {detail}")),
        DriverStatus::Unknown => Some("the driver has not answered in time".into()),
    }
}

/// The sample as tables.
#[must_use]
pub fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let driver = &snapshot.driver;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", headline(snapshot));
    if driver.status == DriverStatus::Ok {
        let _ = writeln!(text, "\n{}", load_table(&snapshot.gpus).trim_fmt());
        let _ = writeln!(text, "\n{}", health_table(&snapshot.gpus).trim_fmt());
        for gpu in &snapshot.gpus {
            if !gpu.state_detail.is_empty() {
                let (index, state) = (gpu.identity.index, gpu.state.as_str());
                let _ = writeln!(text, "GPU {index} is {state}: {}", gpu.state_detail);
            }
        }
    }
    if !snapshot.workloads.is_empty() {
        let _ = writeln!(text, "\n{}", workload_table(snapshot).trim_fmt());
    }
    let _ = writeln!(text, "\n- unknown · n/s not supported by this GPU · 0 is zero");
    text
}

fn headline(snapshot: &Snapshot) -> String {
    let driver = &snapshot.driver;
    let fine = snapshot.gpus.iter().filter(|gpu| gpu.state == GpuState::Ok).count();
    let mut line = format!("node {} · driver {}", snapshot.node, driver.status.as_str());
    if !driver.driver_version.is_empty() {
        let _ = write!(line, " {} · NVML {}", driver.driver_version, driver.nvml_version);
    }
    if let Some(cuda) = driver.cuda_version {
        let _ = write!(line, " · CUDA {}.{}", cuda / 1_000, cuda % 1_000 / 10);
    }
    let _ = write!(line, " · {fine} of {} GPUs fine", snapshot.gpus.len());
    if let Some(expected) = driver.gpus_expected {
        let _ = write!(line, ", {expected} expected");
    }
    line
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(rule));
    // A pipe has no width, and a narrow terminal wraps better than cells do.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    table
}

/// One cell: the value, or why there is none.
fn cell<T: ToString>(gpu: &Gpu, value: Option<T>, calls: &[&str]) -> String {
    match value {
        Some(value) => value.to_string(),
        None if calls.iter().any(|call| is_unsupported(gpu, call)) => "n/s".into(),
        None => "-".into(),
    }
}

/// A call without a subject stands for all its subjects.
fn is_unsupported(gpu: &Gpu, call: &str) -> bool {
    gpu.unsupported.iter().any(|name| {
        name == call || name.strip_prefix(call).is_some_and(|rest| rest.starts_with(':'))
    })
}

fn load_table(gpus: &[Gpu]) -> Table {
    let mut table = new_table(&[
        "GPU",
        "name",
        "state",
        "SM %",
        "mem %",
        "enc %",
        "dec %",
        "memory GiB",
        "temp °C",
        "power W",
        "SM MHz",
        "throttle",
    ]);
    for gpu in gpus {
        let load = gpu.utilization.map(|g| g.value).unwrap_or_default();
        let memory = gpu.memory.map(|g| g.value).unwrap_or_default();
        let thermal = gpu.thermal.map(|g| g.value).unwrap_or_default();
        let power = gpu.power.map(|g| g.value).unwrap_or_default();
        let clocks = gpu.clocks.map(|g| g.value).unwrap_or_default();
        let rates = ["nvmlDeviceGetUtilizationRates"];
        let memory_call = ["nvmlDeviceGetMemoryInfo_v2"];
        let temperature_call = ["nvmlDeviceGetTemperatureV"];
        let used = cell(gpu, memory.used_bytes.map(gib), &memory_call);
        let draw = cell(gpu, power.draw_mw.map(watts), &["nvmlDeviceGetPowerUsage"]);
        let sm = cell(gpu, clocks.sm_mhz, &["nvmlDeviceGetClockInfo:sm"]);
        table.add_row([
            gpu.identity.index.to_string(),
            cell(gpu, Some(&gpu.identity.name).filter(|n| !n.is_empty()), &["nvmlDeviceGetName"]),
            gpu.state.as_str().into(),
            cell(gpu, load.sm_percent, &rates),
            cell(gpu, load.memory_percent, &rates),
            cell(gpu, load.encoder_percent, &["nvmlDeviceGetEncoderUtilization"]),
            cell(gpu, load.decoder_percent, &["nvmlDeviceGetDecoderUtilization"]),
            of(used, memory.total_bytes.map(gib)),
            of(cell(gpu, thermal.temperature_c, &temperature_call), thermal.slowdown_c),
            of(draw, power.limit_mw.map(watts)),
            of(sm, clocks.sm_max_mhz),
            cell(
                gpu,
                clocks.event_reasons.map(reasons),
                &["nvmlDeviceGetCurrentClocksEventReasons"],
            ),
        ]);
    }
    table
}

fn health_table(gpus: &[Gpu]) -> Table {
    let mut table = new_table(&[
        "GPU",
        "UUID",
        "mem °C",
        "ECC corr",
        "ECC uncorr",
        "rows",
        "PCIe",
        "tx / rx MB/s",
        "MIG",
        "action",
        "last Xid",
    ]);
    for gpu in gpus {
        let thermal = gpu.thermal.map(|g| g.value).unwrap_or_default();
        let ecc = gpu.ecc.map(|g| g.value).unwrap_or_default();
        let pcie = gpu.pcie.map(|g| g.value).unwrap_or_default();
        let total = ["nvmlDeviceGetTotalEccErrors"];
        let off = ecc.enabled == Some(false);
        let count = |value| if off { "off".into() } else { cell(gpu, value, &total) };
        let throughput = ["nvmlDeviceGetPcieThroughput"];
        let rate = |value: Option<u64>| cell(gpu, value.map(|b| b / 1_000_000), &throughput);
        table.add_row([
            gpu.identity.index.to_string(),
            gpu.identity.uuid.clone(),
            cell(gpu, thermal.memory_temperature_c, &["field:82", "nvmlDeviceGetFieldValues"]),
            count(ecc.volatile_corrected),
            count(ecc.volatile_uncorrected),
            rows(gpu),
            link(gpu),
            match gpu.pcie {
                Some(_) => {
                    let (tx, rx) = (pcie.tx_bytes_per_second, pcie.rx_bytes_per_second);
                    format!("{} / {}", rate(tx), rate(rx))
                }
                None => "-".into(),
            },
            cell(gpu, gpu.mig.as_ref().map(mig), &["nvmlDeviceGetMigMode"]),
            cell(gpu, gpu.recovery_action.map(action), &["field:230", "nvmlDeviceGetFieldValues"]),
            gpu.xids.first().map_or_else(|| "none".into(), |x| x.code.to_string()),
        ]);
    }
    table
}

fn workload_table(snapshot: &Snapshot) -> Table {
    let mut table = new_table(&[
        "endpoint",
        "service",
        "GPUs",
        "engine",
        "running",
        "waiting",
        "slots",
        "KV %",
        "TTFT p95 ms",
        "tokens/s",
    ]);
    for workload in &snapshot.workloads {
        let engine = workload.engine.unwrap_or_default();
        let known = |value: Option<u32>| value.map_or_else(|| "-".into(), |v| v.to_string());
        table.add_row([
            workload.endpoint.clone(),
            workload.service.clone(),
            workload.gpu_uuids.join(" "),
            if engine.kind.is_empty() { "-".into() } else { engine.kind.into() },
            known(engine.running),
            known(engine.waiting),
            known(engine.slots),
            known(engine.kv_use_bp.map(|bp| bp / 100)),
            known(engine.ttft_p95_ms),
            engine.tokens_per_second.map_or_else(|| "-".into(), |t| format!("{t:.0}")),
        ]);
    }
    table
}

fn of<T: ToString>(value: String, whole: Option<T>) -> String {
    whole.map_or_else(|| value.clone(), |whole| format!("{value} / {}", whole.to_string()))
}

fn gib(bytes: u64) -> String {
    let tenths = bytes / (1 << 20) * 10 / 1_024;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn watts(milliwatts: u32) -> String {
    (milliwatts / 1_000).to_string()
}

fn rows(gpu: &Gpu) -> String {
    let ecc = gpu.ecc.map(|g| g.value).unwrap_or_default();
    let Some(uncorrected) = ecc.remapped_rows_uncorrected else {
        let pages = ecc.retired_pages.map(|n| format!("{n} retired pages"));
        return cell(gpu, pages, &["nvmlDeviceGetRemappedRows"]);
    };
    let corrected = ecc.remapped_rows_corrected.unwrap_or(0);
    let pending = if ecc.remap_pending == Some(true) { " pending" } else { "" };
    let failure = if ecc.remap_failure == Some(true) { " FAILED" } else { "" };
    format!("{}{pending}{failure}", corrected + uncorrected)
}

fn link(gpu: &Gpu) -> String {
    if gpu.pcie.is_none() {
        return "-".into();
    }
    let pcie = gpu.pcie.map(|g| g.value).unwrap_or_default();
    let generation = cell(gpu, pcie.link_generation, &["nvmlDeviceGetCurrPcieLinkGeneration"]);
    let width = cell(gpu, pcie.link_width, &["nvmlDeviceGetCurrPcieLinkWidth"]);
    match pcie.link_width_max.filter(|max| pcie.link_width.is_some_and(|width| width < *max)) {
        Some(max) => format!("gen{generation} x{width} of {max}"),
        None => format!("gen{generation} x{width}"),
    }
}

fn mig(mig: &crate::sample::Mig) -> String {
    if mig.enabled { format!("{} instances", mig.instances.len()) } else { "off".into() }
}

fn action(action: u32) -> String {
    let name = match action {
        0 => "none",
        1 => "reset GPU",
        2 => "reboot node",
        3 => "drain P2P",
        4 => "drain, reset",
        5 => "recover domain",
        _ => return format!("service ({action})"),
    };
    name.into()
}

/// Clock event bits by name; those that only say "idle" or "as configured" are no throttling.
fn reasons(bits: u64) -> String {
    let names = [
        (0x4, "power cap"),
        (0x8, "hw slowdown"),
        (0x20, "sw thermal"),
        (0x40, "hw thermal"),
        (0x80, "power brake"),
    ];
    let found: Vec<&str> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

#[cfg(test)]
#[path = "once/tests.rs"]
mod tests;
