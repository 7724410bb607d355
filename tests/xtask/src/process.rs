//! Child processes: quiet ones whose output matters only on failure, and ones read line by line.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Lines of a failed command that are worth repeating.
const TAIL_LINES: usize = 40;

/// Runs to the end and returns stdout; on failure the error carries the end of both streams.
pub(crate) fn quiet(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{shown}` could not be started"))?;
    if !output.status.success() {
        let mut all = String::from_utf8_lossy(&output.stdout).into_owned();
        all.push_str(&String::from_utf8_lossy(&output.stderr));
        bail!("`{shown}` failed ({}):\n{}", output.status, tail(&all));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs with the terminal's stderr for both streams: progress of others, never a result.
pub(crate) fn chatter(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .with_context(|| format!("`{shown}` could not be started"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs with both streams merged in order, each line handed to `each`.
pub(crate) fn lines(mut command: Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let shown = shown(&command);
    let (reader, writer) = io::pipe().context("no pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("no pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("`{shown}` could not be started"))?;
    // The command still holds the writing end; the reader would wait for ever.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("reading a child's output")? > 0 {
        each(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    child.wait().with_context(|| format!("waiting for `{shown}`"))
}

/// The first line that a program prints for `arguments`, for version listings.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    let fine = child.wait().ok()?.success();
    let line = text.lines().next().map(str::trim).unwrap_or_default();
    (fine && !line.is_empty()).then(|| line.to_owned())
}

/// The end of a text, as many lines as are worth repeating.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].join("\n")
}

fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    command.get_args().fold(name, |text, argument| format!("{text} {}", argument.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_arrive_in_order() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; printf three"]);
        let mut seen = Vec::new();
        let status = lines(command, |line| seen.push(line.to_owned())).unwrap();
        assert!(status.success());
        assert_eq!(seen, ["one", "two", "three"]);
    }

    #[test]
    fn failure_tells_command_and_output() {
        let error = quiet(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("sh -c") && text.contains("why"), "{text}");
    }

    #[test]
    fn missing_program_has_no_version() {
        assert_eq!(first_line(&mut Command::new("/nowhere/tool")), None);
    }
}
