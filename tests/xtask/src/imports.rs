//! What a wasm module asks its host for.
//!
//! Envoy refuses a module with an import it does not know, at load time and for every request. So the
//! import section is read here, at build time, and compared with what Envoy's host has. The section is
//! simple enough that no parser crate is worth its weight: a count, then (module, name, kind) triples.

use anyhow::{Context, Result, bail, ensure};

/// Calls of `wasi_snapshot_preview1` that Envoy's proxy-wasm host provides.
const WASI: &[&str] = &[
    "args_get",
    "args_sizes_get",
    "clock_time_get",
    "environ_get",
    "environ_sizes_get",
    "fd_close",
    "fd_fdstat_get",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_read",
    "fd_seek",
    "fd_write",
    "path_open",
    "proc_exit",
    "random_get",
];

const IMPORT_SECTION: u8 = 2;

/// One import, as `module.name`.
pub(crate) fn names(module: &[u8]) -> Result<Vec<String>> {
    ensure!(module.get(..8) == Some(b"\0asm\x01\0\0\0"), "not a WebAssembly module, version 1");
    let mut rest = Bytes(&module[8..]);
    while !rest.0.is_empty() {
        let id = rest.byte()?;
        let length = rest.length()?;
        let section = rest.take(length)?;
        if id == IMPORT_SECTION {
            return imports(Bytes(section));
        }
    }
    Ok(Vec::new())
}

fn imports(mut section: Bytes<'_>) -> Result<Vec<String>> {
    let count = section.length()?;
    let mut names = Vec::new();
    for _ in 0..count {
        let module = section.text()?;
        let name = section.text()?;
        names.push(format!("{module}.{name}"));
        match section.byte()? {
            0 => section.skip_number()?,
            1 => {
                section.byte()?;
                section.skip_limits()?;
            }
            2 => section.skip_limits()?,
            3 => {
                section.take(2)?;
            }
            kind => bail!("import {module}.{name} is of unknown kind {kind}"),
        }
    }
    Ok(names)
}

/// Imports that Envoy does not have.
pub(crate) fn foreign(names: &[String]) -> Vec<&str> {
    let known = |name: &str| {
        name.strip_prefix("env.").is_some_and(|call| call.starts_with("proxy_"))
            || name.strip_prefix("wasi_snapshot_preview1.").is_some_and(|call| WASI.contains(&call))
    };
    names.iter().map(String::as_str).filter(|name| !known(name)).collect()
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("the module ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// Unsigned LEB128 of at most 32 bits.
    fn length(&mut self) -> Result<usize> {
        let mut value: u64 = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).context("a length beyond this machine");
            }
        }
        bail!("a number longer than 32 bits")
    }

    fn skip_number(&mut self) -> Result<()> {
        self.length().map(drop)
    }

    fn skip_limits(&mut self) -> Result<()> {
        let flags = self.byte()?;
        self.skip_number()?;
        if flags & 1 == 1 {
            self.skip_number()?;
        }
        Ok(())
    }

    fn text(&mut self) -> Result<&'a str> {
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?).context("an import name is not UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with a custom section, then imports of a function, a memory and a global.
    fn module() -> Vec<u8> {
        let mut section = vec![3];
        let mut import = |module: &str, name: &str, kind: &[u8]| {
            section.push(u8::try_from(module.len()).unwrap());
            section.extend(module.as_bytes());
            section.push(u8::try_from(name.len()).unwrap());
            section.extend(name.as_bytes());
            section.extend(kind);
        };
        import("env", "proxy_log", &[0, 0x85, 0x01]);
        import("env", "memory", &[2, 1, 1, 2]);
        import("wasi_snapshot_preview1", "fd_write", &[3, 0x7f, 0]);
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        module.extend([0, 3, 1, b'x', 7]);
        module.extend([IMPORT_SECTION, u8::try_from(section.len()).unwrap()]);
        module.extend(section);
        module
    }

    #[test]
    fn every_kind_of_import_is_named() {
        let names = names(&module()).unwrap();
        assert_eq!(names, ["env.proxy_log", "env.memory", "wasi_snapshot_preview1.fd_write"]);
        assert_eq!(foreign(&names), ["env.memory"]);
    }

    #[test]
    fn other_calls_of_the_same_modules_are_foreign() {
        let names: Vec<String> =
            ["wasi_snapshot_preview1.sock_accept", "env.abort", "wbg.proxy_log"]
                .map(String::from)
                .into();
        assert_eq!(foreign(&names).len(), 3);
    }

    #[test]
    fn cut_module_is_an_error_at_every_length() {
        let module = module();
        for length in 9..module.len() {
            // A cut right behind the custom section is a module without imports.
            let cut = names(&module[..length]);
            assert!(length == 13 || cut.is_err(), "length {length}: {cut:?}");
        }
        assert!(names(b"\0asm\x02\0\0\0").is_err());
    }
}
