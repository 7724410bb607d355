//! The filter as a wasm module, and the proof that Envoy can load it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::{Setup, Wasm};
use crate::config::Workshop;
use crate::{imports, process, setup};

/// What Envoy loads.
pub(crate) const TARGET: &str = "wasm32-wasip1";
/// What Node runs the policy tests as.
pub(crate) const NODE_TARGET: &str = "wasm32-unknown-unknown";

const FILTER: &str = "tidegate-filter";
/// What the filter bench compares with.
const EMPTY_FILTER: &str = "tidegate-empty-filter";
/// Older compilers refuse the workspace's edition and `rust-version`.
const DEBIAN_RUSTC_MIN: (u32, u32) = (1, 95);

/// How this machine can compile for [`TARGET`].
pub(crate) enum WasmWay {
    /// The toolchain has the target's standard library (what rustup adds).
    Toolchain,
    /// Debian's compiler for the web builds the standard library itself.
    Debian(Debian),
}

/// Debian's compiler has no linker for wasm; the toolchain that runs this program lends its own.
pub(crate) struct Debian {
    linker: PathBuf,
}

pub(crate) fn run(shop: &Workshop, how: Wasm) -> Result<()> {
    setup::run(shop, Setup { all: false, real_model: false })?;
    let report = build(shop)?;
    println!("{report}");
    if how.opt {
        println!("{}", optimise(shop)?);
    }
    Ok(())
}

/// Builds, checks, and says in one line what came out.
pub(crate) fn build(shop: &Workshop) -> Result<String> {
    no_getrandom(shop)?;
    compile(shop, FILTER, &shop.wasm_file())?;
    checked(&shop.wasm_file())
}

/// Builds the filter that does nothing, next to the real one.
pub(crate) fn build_empty(shop: &Workshop) -> Result<()> {
    compile(shop, EMPTY_FILTER, &shop.wasm_file().with_file_name("tidegate_empty_filter.wasm"))
}

fn compile(shop: &Workshop, package: &str, wanted: &Path) -> Result<()> {
    let profile = ["build", "--package", package, "--profile", "wasm", "--target", TARGET];
    match way(shop)? {
        WasmWay::Toolchain => process::chatter(&mut shop.cargo(profile)),
        WasmWay::Debian(debian) => build_with_debian(shop, &debian, &profile, wanted),
    }
}

fn build_with_debian(
    shop: &Workshop,
    debian: &Debian,
    profile: &[&str],
    wanted: &Path,
) -> Result<()> {
    // Two compilers must not share build output.
    let target = shop.target.join("debian");
    let mut cargo = shop.command("/usr/bin/cargo");
    cargo.args(profile).arg("-Zbuild-std=std,panic_abort").arg("--target-dir").arg(&target);
    cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
    cargo.env("CARGO_TARGET_WASM32_WASIP1_LINKER", &debian.linker);
    let flags = "-C link-self-contained=no -L /usr/lib/wasm32-wasi";
    cargo.env("CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS", flags);
    process::chatter(&mut cargo)?;
    let name = wanted.file_name().context("the module has a name")?;
    let built = target.join(TARGET).join("wasm").join(name);
    fs::create_dir_all(wanted.parent().context("the module has a folder")?)?;
    fs::copy(built, wanted).context("copying the module")?;
    Ok(())
}

/// The size, once nothing is imported that Envoy lacks.
fn checked(file: &Path) -> Result<String> {
    let module = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let names = imports::names(&module).with_context(|| format!("reading {}", file.display()))?;
    let foreign = imports::foreign(&names);
    ensure!(foreign.is_empty(), "Envoy has no {}", foreign.join(", "));
    let wasi: Vec<&str> =
        names.iter().filter_map(|name| name.strip_prefix("wasi_snapshot_preview1.")).collect();
    Ok(format!(
        "{}: {} bytes, {} imports, of WASI {}",
        file.display(),
        module.len(),
        names.len(),
        if wasi.is_empty() { "none".to_owned() } else { wasi.join(" ") },
    ))
}

/// Chance enters the filter as an argument; a crate that asks the system for it would, on some
/// targets, import what Envoy lacks.
fn no_getrandom(shop: &Workshop) -> Result<()> {
    let arguments = ["tree", "--quiet", "--package", FILTER, "--target", TARGET];
    let tree = process::quiet(shop.cargo(arguments).args(["--edges=normal", "--prefix=none"]))?;
    let found = tree.lines().find(|line| line.starts_with("getrandom "));
    ensure!(
        found.is_none(),
        "the filter depends on getrandom; see `cargo tree -i getrandom --target {TARGET} -p {FILTER}`"
    );
    Ok(())
}

fn optimise(shop: &Workshop) -> Result<String> {
    if shop.which("wasm-opt").is_none() {
        setup::binaryen(shop)?;
    }
    let wasm_opt = shop.which("wasm-opt").context("wasm-opt is still missing")?;
    let small = shop.wasm_file().with_extension("opt.wasm");
    let mut command = shop.command(wasm_opt);
    // The features that rustc's target turns on; without them wasm-opt refuses the module.
    command.args(["-O3", "--all-features", "--disable-gc", "--output"]).arg(&small);
    process::quiet(command.arg(shop.wasm_file()))?;
    checked(&small)
}

/// The best way this machine has, or what to install.
pub(crate) fn way(shop: &Workshop) -> Result<WasmWay> {
    if has_target(shop, TARGET) {
        return Ok(WasmWay::Toolchain);
    }
    debian(shop).map(WasmWay::Debian)
}

/// Whether the toolchain has a standard library for `target`, whoever installed it.
pub(crate) fn has_target(shop: &Workshop, target: &str) -> bool {
    let mut rustc = shop.command("rustc");
    process::first_line(rustc.args(["--print", "target-libdir", "--target", target]))
        .is_some_and(|dir| Path::new(&dir).is_dir())
}

fn debian(shop: &Workshop) -> Result<Debian> {
    let how = "either `rustup target add wasm32-wasip1`, or on Debian \
               `apt-get install rustc-web cargo-web rust-web-src wasi-libc`";
    for part in ["/usr/bin/rustc", "/usr/bin/cargo", "/usr/lib/wasm32-wasi/libc.a"] {
        ensure!(
            Path::new(part).exists(),
            "no way to compile for {TARGET} ({part} is missing): {how}"
        );
    }
    let version = process::first_line(shop.command("/usr/bin/rustc").arg("--version"))
        .context("/usr/bin/rustc does not run")?;
    let enough = minor_version(&version).is_some_and(|found| found >= DEBIAN_RUSTC_MIN);
    let (major, minor) = DEBIAN_RUSTC_MIN;
    ensure!(enough, "/usr/bin/rustc is {version}, at least {major}.{minor} is needed: {how}");
    let Some(sysroot) = process::first_line(shop.command("rustc").args(["--print", "sysroot"]))
    else {
        bail!("rustc does not run")
    };
    let rustlib = Path::new(&sysroot).join("lib/rustlib");
    let linker = fs::read_dir(&rustlib)
        .with_context(|| format!("reading {}", rustlib.display()))?
        .flatten()
        .map(|target| target.path().join("bin/rust-lld"))
        .find(|file| file.exists())
        .context("the toolchain has no rust-lld")?;
    Ok(Debian { linker })
}

/// `(1, 96)` of `rustc 1.96.0 (…)`.
fn minor_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(' ').nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_versions_compare_by_number() {
        let version = |text| minor_version(text).unwrap();
        assert!(version("rustc 1.94.1 (abc)") < DEBIAN_RUSTC_MIN);
        assert!(version("rustc 1.95.0 (abc)") >= DEBIAN_RUSTC_MIN);
        assert!(version("rustc 1.100.0") >= DEBIAN_RUSTC_MIN);
        assert_eq!(minor_version("rustc"), None);
    }
}
