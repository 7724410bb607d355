//! Where things are. The only file here that reads the environment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Paths of the repository and its tools, found once.
pub(crate) struct Workshop {
    pub(crate) root: PathBuf,
    /// Everything that `setup` gets; ignored by git.
    pub(crate) tools: PathBuf,
    /// Cargo's build output.
    pub(crate) target: PathBuf,
    cargo: OsString,
    /// `PATH` with the tools of `.tools/` in front.
    path: OsString,
}

#[expect(clippy::disallowed_methods, reason = "this is the file that reads the environment")]
impl Workshop {
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("the repository root is two folders above tests/xtask")?
            .to_path_buf();
        let tools = root.join(".tools");
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(PathBuf::from(dir)));
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let inherited = env::var_os("PATH").unwrap_or_default();
        let own = [tools.join("cargo/bin"), tools.join("npm/node_modules/.bin")];
        let path = env::join_paths(own.into_iter().chain(env::split_paths(&inherited)))
            .context("PATH holds a folder with a separator in its name")?;
        Ok(Self { root, tools, target, cargo, path })
    }

    /// `cargo`, of the toolchain that runs this program, in the repository root.
    pub(crate) fn cargo<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.command(&self.cargo);
        command.args(arguments);
        command
    }

    /// Any program, in the repository root, with our own tools found first.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("PATH", &self.path);
        command
    }

    /// Where a program is, in `.tools/` or on the `PATH`.
    pub(crate) fn which(&self, program: &str) -> Option<PathBuf> {
        env::split_paths(&self.path).map(|dir| dir.join(program)).find(|file| is_program(file))
    }

    /// A program of the Python environment, if set up.
    pub(crate) fn venv(&self, program: &str) -> Option<PathBuf> {
        let file = self.tools.join("venv/bin").join(program);
        is_program(&file).then_some(file)
    }

    /// The filter as Envoy loads it.
    pub(crate) fn wasm_file(&self) -> PathBuf {
        self.target.join("wasm32-wasip1/wasm/tidegate_filter.wasm")
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
