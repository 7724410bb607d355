//! Child processes: output to a file, ended with their handle by their own id, frozen and thawed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::eventually::{eventually, until};

/// Lines of output shown when a test fails.
const TAIL_LINES: usize = 30;

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to `dir/name.log`.
    ///
    /// # Errors
    /// The program cannot be started, or its log not written.
    pub fn spawn(name: &str, dir: &Path, mut command: Command) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let log = dir.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child =
            command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it has printed.
    #[must_use]
    pub fn output(&self) -> String {
        fs::read(&self.log).map_or_else(
            |error| format!("no log: {error}"),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until `check` holds; its end before that is an error with its last words.
    ///
    /// # Errors
    /// It ended, or the time was up.
    pub async fn ready(
        &mut self,
        within: Duration,
        mut check: impl AsyncFnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let what = format!("{} is ready", self.name);
        let mut ended = None;
        let waited = until(within, &what, async || {
            ended = self.ended();
            Ok(ended.is_some() || check().await?)
        })
        .await;
        let name = &self.name;
        if let Some(status) = ended {
            bail!("{name} ended before it was ready, {status}:\n{}", self.tail());
        }
        waited.with_context(|| format!("{name} said:\n{}", self.tail()))
    }

    /// Stops it in the middle of whatever it does, sockets open (SIGSTOP).
    ///
    /// # Errors
    /// The process is gone.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// # Errors
    /// The process is gone.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// The process is gone.
    pub fn ask_to_end(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends it without asking (SIGKILL).
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end and waits for that.
    ///
    /// # Errors
    /// It has not ended in time.
    pub async fn end(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.ask_to_end()?;
        let what = format!("{} ends when asked", self.name);
        eventually(within, &what, async || Ok(self.ended())).await
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id())?;
        let pid = Pid::from_raw(id).context("a process has no id 0")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("---- {} ({})\n{}", self.name, self.log.display(), self.tail());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(name: &str) -> Process {
        let dir = std::env::temp_dir().join(format!("tidegate-process-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; exec sleep 60"]);
        Process::spawn(name, &dir, command).unwrap()
    }

    fn state(id: u32) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        Some(status.rsplit_once(") ")?.1.chars().take(1).collect())
    }

    #[tokio::test]
    async fn a_child_is_frozen_thawed_and_ended() {
        let mut process = sleeper("frozen");
        let within = Duration::from_secs(5);
        let is = async |wanted: &'static str| {
            let id = process.id();
            eventually(within, wanted, async || Ok(state(id).filter(|s| s == wanted)))
                .await
                .unwrap()
        };
        is("S").await;
        process.freeze().unwrap();
        is("T").await;
        process.thaw().unwrap();
        is("S").await;
        eventually(within, "output", async || {
            Ok(process.output().contains("started").then_some(()))
        })
        .await
        .unwrap();
        assert!(!process.end(within).await.unwrap().success());
    }

    #[test]
    fn a_child_ends_with_its_handle() {
        let process = sleeper("dropped");
        let id = process.id();
        drop(process);
        assert_eq!(state(id), None);
    }
}
