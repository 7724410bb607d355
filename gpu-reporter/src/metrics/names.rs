//! All metric names of the reporter.

use crate::sample::Gpu;

macro_rules! gpu_metrics {
    ($($variant:ident $name:literal $kind:literal $alias:expr, $help:literal, |$gpu:ident| $value:expr;)*) => {
        /// A figure of one GPU.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum GpuMetric { $($variant),* }

        impl GpuMetric {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Own name, in base units.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            #[must_use]
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$variant => $kind),* }
            }

            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            /// The name that dcgm-exporter has for it, and what to multiply by to get its unit.
            #[must_use]
            pub const fn alias(self) -> Option<(&'static str, f64)> {
                match self { $(Self::$variant => $alias),* }
            }

            /// The figure in base units, if it is known.
            #[must_use]
            pub fn value(self, gpu: &Gpu) -> Option<f64> {
                match self { $(Self::$variant => { let $gpu = gpu; $value }),* }
            }
        }
    };
}

const MIB: f64 = 1.0 / 1_048_576.0;
const MHZ: f64 = 1e-6;

#[expect(clippy::cast_precision_loss, reason = "exposition numbers are floats")]
const fn whole(value: u64) -> f64 {
    value as f64
}

fn percent(value: Option<u32>) -> Option<f64> {
    value.map(|v| f64::from(v) / 100.0)
}

fn mhz(value: Option<u32>) -> Option<f64> {
    value.map(|v| f64::from(v) * 1e6)
}

fn milli(value: Option<u32>) -> Option<f64> {
    value.map(|v| f64::from(v) / 1_000.0)
}

fn flag(value: Option<bool>) -> Option<f64> {
    value.map(|v| f64::from(u8::from(v)))
}

gpu_metrics! {
    SmUtilization "tidegate_gpu_sm_utilization_ratio" "gauge" Some(("DCGM_FI_DEV_GPU_UTIL", 100.0)),
        "Share of time in which a kernel ran.", |g| percent(g.utilization?.value.sm_percent);
    MemoryUtilization "tidegate_gpu_memory_utilization_ratio" "gauge" Some(("DCGM_FI_DEV_MEM_COPY_UTIL", 100.0)),
        "Share of time in which memory was read or written.", |g| percent(g.utilization?.value.memory_percent);
    EncoderUtilization "tidegate_gpu_encoder_utilization_ratio" "gauge" Some(("DCGM_FI_DEV_ENC_UTIL", 100.0)),
        "Use of the video encoder.", |g| percent(g.utilization?.value.encoder_percent);
    DecoderUtilization "tidegate_gpu_decoder_utilization_ratio" "gauge" Some(("DCGM_FI_DEV_DEC_UTIL", 100.0)),
        "Use of the video decoder.", |g| percent(g.utilization?.value.decoder_percent);
    MemoryTotal "tidegate_gpu_memory_total_bytes" "gauge" Some(("DCGM_FI_DEV_FB_TOTAL", MIB)),
        "Memory of the GPU.", |g| g.memory?.value.total_bytes.map(whole);
    MemoryFree "tidegate_gpu_memory_free_bytes" "gauge" Some(("DCGM_FI_DEV_FB_FREE", MIB)),
        "Memory not in use.", |g| g.memory?.value.free_bytes.map(whole);
    MemoryUsed "tidegate_gpu_memory_used_bytes" "gauge" Some(("DCGM_FI_DEV_FB_USED", MIB)),
        "Memory in use.", |g| g.memory?.value.used_bytes.map(whole);
    MemoryReserved "tidegate_gpu_memory_reserved_bytes" "gauge" Some(("DCGM_FI_DEV_FB_RESERVED", MIB)),
        "Memory that the driver keeps.", |g| g.memory?.value.reserved_bytes.map(whole);
    Temperature "tidegate_gpu_temperature_celsius" "gauge" Some(("DCGM_FI_DEV_GPU_TEMP", 1.0)),
        "Temperature of the GPU.", |g| g.thermal?.value.temperature_c.map(f64::from);
    MemoryTemperature "tidegate_gpu_memory_temperature_celsius" "gauge" Some(("DCGM_FI_DEV_MEMORY_TEMP", 1.0)),
        "Temperature of the memory.", |g| g.thermal?.value.memory_temperature_c.map(f64::from);
    SlowdownTemperature "tidegate_gpu_slowdown_temperature_celsius" "gauge" Some(("DCGM_FI_DEV_SLOWDOWN_TEMP", 1.0)),
        "Temperature at which clocks fall.", |g| g.thermal?.value.slowdown_c.map(f64::from);
    ShutdownTemperature "tidegate_gpu_shutdown_temperature_celsius" "gauge" Some(("DCGM_FI_DEV_SHUTDOWN_TEMP", 1.0)),
        "Temperature at which the GPU turns off.", |g| g.thermal?.value.shutdown_c.map(f64::from);
    PowerDraw "tidegate_gpu_power_draw_watts" "gauge" Some(("DCGM_FI_DEV_POWER_USAGE", 1.0)),
        "Power drawn.", |g| milli(g.power?.value.draw_mw);
    PowerLimit "tidegate_gpu_power_limit_watts" "gauge" Some(("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 1.0)),
        "Power limit in force.", |g| milli(g.power?.value.limit_mw);
    Energy "tidegate_gpu_energy_joules_total" "counter" Some(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1_000.0)),
        "Energy since the driver was loaded.", |g| g.power?.value.energy_mj.map(|mj| whole(mj) / 1_000.0);
    SmClock "tidegate_gpu_sm_clock_hertz" "gauge" Some(("DCGM_FI_DEV_SM_CLOCK", MHZ)),
        "Clock of the SMs.", |g| mhz(g.clocks?.value.sm_mhz);
    SmClockMax "tidegate_gpu_sm_clock_max_hertz" "gauge" Some(("DCGM_FI_DEV_MAX_SM_CLOCK", MHZ)),
        "Highest clock of the SMs.", |g| mhz(g.clocks?.value.sm_max_mhz);
    MemoryClock "tidegate_gpu_memory_clock_hertz" "gauge" Some(("DCGM_FI_DEV_MEM_CLOCK", MHZ)),
        "Clock of the memory.", |g| mhz(g.clocks?.value.memory_mhz);
    MemoryClockMax "tidegate_gpu_memory_clock_max_hertz" "gauge" Some(("DCGM_FI_DEV_MAX_MEM_CLOCK", MHZ)),
        "Highest clock of the memory.", |g| mhz(g.clocks?.value.memory_max_mhz);
    ClockReasons "tidegate_gpu_clock_event_reasons" "gauge" Some(("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1.0)),
        "Why clocks are held down, as the driver's bits.", |g| g.clocks?.value.event_reasons.map(whole);
    PerformanceState "tidegate_gpu_performance_state" "gauge" Some(("DCGM_FI_DEV_PSTATE", 1.0)),
        "Performance state, 0 is the fastest.", |g| g.clocks?.value.performance_state.map(f64::from);
    EccVolatileCorrected "tidegate_gpu_ecc_volatile_corrected_total" "counter" Some(("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1.0)),
        "Corrected memory errors since the driver was loaded.", |g| g.ecc?.value.volatile_corrected.map(whole);
    EccVolatileUncorrected "tidegate_gpu_ecc_volatile_uncorrected_total" "counter" Some(("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1.0)),
        "Uncorrected memory errors since the driver was loaded.", |g| g.ecc?.value.volatile_uncorrected.map(whole);
    EccAggregateCorrected "tidegate_gpu_ecc_aggregate_corrected_total" "counter" Some(("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 1.0)),
        "Corrected memory errors in the GPU's life.", |g| g.ecc?.value.aggregate_corrected.map(whole);
    EccAggregateUncorrected "tidegate_gpu_ecc_aggregate_uncorrected_total" "counter" Some(("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 1.0)),
        "Uncorrected memory errors in the GPU's life.", |g| g.ecc?.value.aggregate_uncorrected.map(whole);
    RetiredPages "tidegate_gpu_retired_pages" "gauge" None,
        "Memory pages taken out of use, on GPUs before Ampere.", |g| g.ecc?.value.retired_pages.map(f64::from);
    RowsCorrected "tidegate_gpu_remapped_rows_corrected" "gauge" Some(("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 1.0)),
        "Memory rows remapped for corrected errors.", |g| g.ecc?.value.remapped_rows_corrected.map(f64::from);
    RowsUncorrected "tidegate_gpu_remapped_rows_uncorrected" "gauge" Some(("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1.0)),
        "Memory rows remapped for uncorrected errors.", |g| g.ecc?.value.remapped_rows_uncorrected.map(f64::from);
    RemapPending "tidegate_gpu_row_remap_pending" "gauge" Some(("DCGM_FI_DEV_ROW_REMAP_PENDING", 1.0)),
        "1 when a remap waits for a reset.", |g| flag(g.ecc?.value.remap_pending);
    RemapFailure "tidegate_gpu_row_remap_failure" "gauge" Some(("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1.0)),
        "1 when a remap failed.", |g| flag(g.ecc?.value.remap_failure);
    PcieTx "tidegate_gpu_pcie_transmit_bytes_per_second" "gauge" Some(("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0)),
        "Bytes sent over PCIe.", |g| g.pcie?.value.tx_bytes_per_second.map(whole);
    PcieRx "tidegate_gpu_pcie_receive_bytes_per_second" "gauge" Some(("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0)),
        "Bytes received over PCIe.", |g| g.pcie?.value.rx_bytes_per_second.map(whole);
    PcieGeneration "tidegate_gpu_pcie_link_generation" "gauge" Some(("DCGM_FI_DEV_PCIE_LINK_GEN", 1.0)),
        "PCIe generation in use.", |g| g.pcie?.value.link_generation.map(f64::from);
    PcieGenerationMax "tidegate_gpu_pcie_link_generation_max" "gauge" Some(("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", 1.0)),
        "Highest PCIe generation.", |g| g.pcie?.value.link_generation_max.map(f64::from);
    PcieWidth "tidegate_gpu_pcie_link_width" "gauge" Some(("DCGM_FI_DEV_PCIE_LINK_WIDTH", 1.0)),
        "PCIe lanes in use.", |g| g.pcie?.value.link_width.map(f64::from);
    PcieWidthMax "tidegate_gpu_pcie_link_width_max" "gauge" Some(("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 1.0)),
        "Most PCIe lanes.", |g| g.pcie?.value.link_width_max.map(f64::from);
    PcieReplay "tidegate_gpu_pcie_replays_total" "counter" Some(("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1.0)),
        "PCIe packets sent again.", |g| g.pcie?.value.replay_count.map(f64::from);
    LastXid "tidegate_gpu_xid_last" "gauge" Some(("DCGM_FI_DEV_XID_ERRORS", 1.0)),
        "Code of the newest Xid; see tidegate_gpu_xid_events_total for history.", |g| g.xids.first().map(|xid| f64::from(xid.code));
    RecoveryAction "tidegate_gpu_recovery_action" "gauge" None,
        "What the driver asks for: 0 nothing, else a service action.", |g| g.recovery_action.map(f64::from);
}

macro_rules! own_metrics {
    ($($variant:ident $name:literal $kind:literal $help:literal;)*) => {
        /// What is not a plain figure of one GPU.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OwnMetric { $($variant),* }

        impl OwnMetric {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            #[must_use]
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$variant => $kind),* }
            }

            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }
        }
    };
}

own_metrics! {
    GpuState "tidegate_gpu_state" "gauge" "1 for the state that the GPU is in.";
    SampleAge "tidegate_gpu_sample_age_seconds" "gauge" "How long ago a group of figures was read.";
    Xids "tidegate_gpu_xid_events_total" "counter" "Xid events by code.";
    Driver "tidegate_gpu_driver_status" "gauge" "1 for the status that the driver is in.";
    GpusSeen "tidegate_gpu_reporter_gpus_seen" "gauge" "GPUs that the driver lists.";
    GpusExpected "tidegate_gpu_reporter_gpus_expected" "gauge" "GPUs that this node should have.";
    CallSeconds "tidegate_gpu_reporter_nvml_call_seconds" "summary" "Time spent in driver calls and their number, by function.";
    CallsFailed "tidegate_gpu_reporter_nvml_failures_total" "counter" "Driver calls without a value, by function.";
    CallsLate "tidegate_gpu_reporter_nvml_late_total" "counter" "Driver calls over the slow limit, by function.";
    Connected "tidegate_gpu_reporter_connected" "gauge" "1 while the control plane takes reports.";
    Connects "tidegate_gpu_reporter_connects_total" "counter" "Streams opened to the control plane.";
    ConnectFailures "tidegate_gpu_reporter_stream_failures_total" "counter" "Streams that failed, before or after they opened.";
    Reports "tidegate_gpu_reporter_reports_total" "counter" "Reports sent.";
    Conflated "tidegate_gpu_reporter_conflated_total" "counter" "Reports that a newer one replaced before it was sent.";
    Refused "tidegate_gpu_reporter_refused_total" "counter" "Reports that the control plane refused.";
    Rounds "tidegate_gpu_reporter_rounds_total" "counter" "Sampling rounds.";
    Interval "tidegate_gpu_reporter_interval_seconds" "gauge" "Period in force.";
    ScrapeFailures "tidegate_gpu_reporter_scrape_failures_total" "counter" "Model server pages that gave nothing.";
    WorkloadsValid "tidegate_gpu_reporter_workloads_valid" "gauge" "1 when the workloads file as it stands was read.";
    CpuSeconds "tidegate_gpu_reporter_cpu_seconds_total" "counter" "CPU time of this process.";
    ResidentBytes "tidegate_gpu_reporter_resident_bytes" "gauge" "Memory of this process.";
    Build "tidegate_gpu_reporter_build_info" "gauge" "Version of this process.";
    PageSeconds "tidegate_gpu_reporter_page_seconds" "gauge" "Time it took to make this page.";
}
