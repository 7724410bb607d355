use super::*;
use crate::sample::{Aged, Driver, Identity, Utilization};

fn gpu(state: GpuState) -> Gpu {
    Gpu {
        identity: Identity { uuid: "GPU-a".into(), name: "A100".into(), ..Identity::default() },
        state,
        state_detail: String::new(),
        utilization: None,
        memory: None,
        thermal: None,
        power: None,
        clocks: None,
        ecc: None,
        pcie: None,
        processes: None,
        mig: None,
        xids: Vec::new(),
        recovery_action: None,
        unsupported: Vec::new(),
    }
}

fn snapshot(status: DriverStatus, gpus: Vec<Gpu>) -> Snapshot {
    Snapshot {
        node: "n".into(),
        driver: Driver { status, ..Driver::default() },
        gpus,
        workloads: Vec::new(),
        host: None,
    }
}

#[test]
fn exit_code_says_what_a_script_needs() {
    let code = |status, gpus| exit_code(&snapshot(status, gpus));
    assert_eq!(code(DriverStatus::Ok, vec![gpu(GpuState::Ok)]), 0);
    assert_eq!(code(DriverStatus::Ok, vec![gpu(GpuState::Ok), gpu(GpuState::Lost)]), 1);
    assert_eq!(code(DriverStatus::Absent, Vec::new()), 3);
    for status in [DriverStatus::Mismatch, DriverStatus::Hung, DriverStatus::Failed] {
        assert_eq!(code(status, Vec::new()), 1);
    }
    let mut few = snapshot(DriverStatus::Ok, vec![gpu(GpuState::Ok)]);
    few.driver.gpus_expected = Some(2);
    assert_eq!(exit_code(&few), 1);
}

#[test]
fn unknown_unsupported_and_zero_look_different() {
    let mut gpu = gpu(GpuState::Ok);
    let call = ["nvmlDeviceGetEncoderUtilization"];
    assert_eq!(cell(&gpu, None::<u32>, &call), "-");
    assert_eq!(cell(&gpu, Some(0), &call), "0");
    gpu.unsupported.push(call[0].into());
    assert_eq!(cell(&gpu, None::<u32>, &call), "n/s");
    let value = Utilization { sm_percent: Some(0), ..Utilization::default() };
    gpu.utilization = Some(Aged { age_ms: 0, value });
    assert!(table(&snapshot(DriverStatus::Ok, vec![gpu])).contains("n/s"));
}

#[test]
fn idle_and_configured_clocks_are_no_throttling() {
    assert_eq!(reasons(0x1 | 0x2 | 0x100), "none");
    assert_eq!(reasons(0x48), "hw slowdown, hw thermal");
}

#[test]
fn an_action_newer_than_the_list_means_service() {
    assert_eq!(action(0), "none");
    assert_eq!(action(9), "service (9)");
}

#[test]
fn gibibytes_have_one_decimal() {
    // 61,440 MiB = 60.0 GiB; 23,034 MiB = 22.49 GiB.
    assert_eq!(gib(61_440 << 20), "60.0");
    assert_eq!(gib(23_034 << 20), "22.4");
}
