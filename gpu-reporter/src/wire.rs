//! The reporter's own types to those of `tidegate.v1`. The only file that knows both.

use tidegate_proto::v1;

use crate::sample::{self as own, DriverStatus, GpuState};

/// Who is sending, and which report this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    pub boot_id: String,
    pub part: String,
    pub sequence: u64,
    pub interval_ms: u32,
    pub leaving: bool,
}

#[must_use]
pub fn report(snapshot: own::Snapshot, envelope: Envelope) -> v1::ReportRequest {
    v1::ReportRequest {
        node: snapshot.node,
        boot_id: envelope.boot_id,
        sequence: envelope.sequence,
        reporter_version: env!("CARGO_PKG_VERSION").into(),
        driver: Some(driver(snapshot.driver)),
        gpus: snapshot.gpus.into_iter().map(gpu).collect(),
        workloads: snapshot.workloads.into_iter().map(workload).collect(),
        host: snapshot.host.map(host),
        interval_ms: envelope.interval_ms,
        leaving: envelope.leaving,
        part: envelope.part,
    }
}

fn driver(driver: own::Driver) -> v1::DriverState {
    let status = match driver.status {
        DriverStatus::Unknown => v1::DriverStatus::Unspecified,
        DriverStatus::Ok => v1::DriverStatus::Ok,
        DriverStatus::Absent => v1::DriverStatus::Absent,
        DriverStatus::Mismatch => v1::DriverStatus::Mismatch,
        DriverStatus::Hung => v1::DriverStatus::Hung,
        DriverStatus::Failed => v1::DriverStatus::Failed,
    };
    v1::DriverState {
        status: status.into(),
        driver_version: driver.driver_version,
        nvml_version: driver.nvml_version,
        cuda_version: driver.cuda_version,
        detail: driver.detail,
        gpus_expected: driver.gpus_expected,
    }
}

fn state(state: GpuState) -> i32 {
    match state {
        GpuState::Unknown => v1::GpuState::Unspecified,
        GpuState::Ok => v1::GpuState::Ok,
        GpuState::Lost => v1::GpuState::Lost,
        GpuState::Hung => v1::GpuState::Hung,
        GpuState::Slow => v1::GpuState::Slow,
        GpuState::Missing => v1::GpuState::Missing,
    }
    .into()
}

fn age(age_ms: u64) -> u32 {
    u32::try_from(age_ms).unwrap_or(u32::MAX)
}

fn gpu(gpu: own::Gpu) -> v1::Gpu {
    v1::Gpu {
        uuid: gpu.identity.uuid,
        index: gpu.identity.index,
        name: gpu.identity.name,
        pci_bus_id: gpu.identity.pci_bus_id,
        architecture: gpu.identity.architecture,
        state: state(gpu.state),
        state_detail: gpu.state_detail,
        utilization: gpu.utilization.map(|own::Aged { age_ms, value }| v1::Utilization {
            age_ms: age(age_ms),
            sm_percent: value.sm_percent,
            memory_percent: value.memory_percent,
            encoder_percent: value.encoder_percent,
            decoder_percent: value.decoder_percent,
        }),
        memory: gpu.memory.map(|own::Aged { age_ms, value }| v1::Memory {
            age_ms: age(age_ms),
            total_bytes: value.total_bytes,
            free_bytes: value.free_bytes,
            used_bytes: value.used_bytes,
            reserved_bytes: value.reserved_bytes,
        }),
        thermal: gpu.thermal.map(|own::Aged { age_ms, value }| v1::Thermal {
            age_ms: age(age_ms),
            temperature_c: value.temperature_c,
            slowdown_c: value.slowdown_c,
            shutdown_c: value.shutdown_c,
            memory_temperature_c: value.memory_temperature_c,
        }),
        power: gpu.power.map(|own::Aged { age_ms, value }| v1::Power {
            age_ms: age(age_ms),
            draw_mw: value.draw_mw,
            limit_mw: value.limit_mw,
            energy_mj: value.energy_mj,
        }),
        clocks: gpu.clocks.map(|own::Aged { age_ms, value }| v1::Clocks {
            age_ms: age(age_ms),
            sm_mhz: value.sm_mhz,
            sm_max_mhz: value.sm_max_mhz,
            memory_mhz: value.memory_mhz,
            memory_max_mhz: value.memory_max_mhz,
            event_reasons: value.event_reasons,
            performance_state: value.performance_state,
        }),
        ecc: gpu.ecc.map(ecc),
        pcie: gpu.pcie.map(pcie),
        processes: gpu.processes.map(|own::Aged { age_ms, value }| v1::Processes {
            age_ms: age(age_ms),
            compute: value.compute.into_iter().map(process).collect(),
        }),
        mig: gpu.mig.map(|mig| v1::Mig {
            enabled: mig.enabled,
            instances: mig.instances.into_iter().map(instance).collect(),
        }),
        xids: gpu.xids.into_iter().map(xid).collect(),
        recovery_action: gpu.recovery_action,
        unsupported: gpu.unsupported,
    }
}

fn ecc(ecc: own::Aged<own::Ecc>) -> v1::Ecc {
    let value = ecc.value;
    v1::Ecc {
        age_ms: age(ecc.age_ms),
        enabled: value.enabled,
        volatile_corrected: value.volatile_corrected,
        volatile_uncorrected: value.volatile_uncorrected,
        aggregate_corrected: value.aggregate_corrected,
        aggregate_uncorrected: value.aggregate_uncorrected,
        retired_pages: value.retired_pages,
        remapped_rows_corrected: value.remapped_rows_corrected,
        remapped_rows_uncorrected: value.remapped_rows_uncorrected,
        remap_pending: value.remap_pending,
        remap_failure: value.remap_failure,
    }
}

fn pcie(pcie: own::Aged<own::Pcie>) -> v1::Pcie {
    let value = pcie.value;
    v1::Pcie {
        age_ms: age(pcie.age_ms),
        tx_bytes_per_second: value.tx_bytes_per_second,
        rx_bytes_per_second: value.rx_bytes_per_second,
        link_generation: value.link_generation,
        link_generation_max: value.link_generation_max,
        link_width: value.link_width,
        link_width_max: value.link_width_max,
        replay_count: value.replay_count,
    }
}

const fn process(process: own::Process) -> v1::Process {
    v1::Process { pid: process.pid, used_memory_bytes: process.used_memory_bytes }
}

fn instance(instance: own::MigInstance) -> v1::MigInstance {
    v1::MigInstance {
        uuid: instance.uuid,
        gpu_instance_id: instance.gpu_instance_id,
        compute_instance_id: instance.compute_instance_id,
        memory_total_bytes: instance.memory_total_bytes,
        memory_used_bytes: instance.memory_used_bytes,
    }
}

const fn xid(xid: own::Xid) -> v1::XidEvent {
    v1::XidEvent { code: xid.code, age_ms: xid.age_ms, event_id: xid.event_id }
}

fn workload(workload: own::WorkloadView) -> v1::Workload {
    v1::Workload {
        endpoint: workload.endpoint,
        service: workload.service,
        gpu_uuids: workload.gpu_uuids,
        namespace: workload.namespace,
        pod: workload.pod,
        pod_uid: String::new(),
        engine: workload.engine.map(|engine| v1::Engine {
            age_ms: age(engine.age_ms),
            kind: engine.kind.into(),
            running: engine.running,
            waiting: engine.waiting,
            kv_use_bp: engine.kv_use_bp,
            slots: engine.slots,
            ttft_p50_ms: engine.ttft_p50_ms,
            ttft_p95_ms: engine.ttft_p95_ms,
            tokens_per_second: engine.tokens_per_second,
            finished_total: engine.finished_total,
        }),
    }
}

fn host(host: own::Host) -> v1::Host {
    v1::Host {
        age_ms: age(host.age_ms),
        cpu_use_bp: host.cpu_use_bp,
        memory_total_bytes: host.memory_total_bytes,
        memory_available_bytes: host.memory_available_bytes,
        network_rx_bytes_per_second: host.network_rx_bytes_per_second,
        network_tx_bytes_per_second: host.network_tx_bytes_per_second,
        load_1m: host.load_1m,
        cpu_pressure_bp: host.cpu_pressure_bp,
        memory_pressure_bp: host.memory_pressure_bp,
        io_pressure_bp: host.io_pressure_bp,
    }
}
