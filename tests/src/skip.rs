//! A test that cannot run says so, loudly.

/// Ends the test as skipped: prints `SKIPPED: reason`, which the test command counts; with
/// `TIDEGATE_STRICT=1` it fails instead.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        let reason = format!($($reason)+);
        assert!(!$crate::config::is_strict(), "SKIPPED: {reason}");
        println!("SKIPPED: {reason}");
        return Ok(());
    }};
}

/// The tools of a whole rig, or the end of the test.
#[macro_export]
macro_rules! tools_or_skip {
    () => {{
        let tools = $crate::Tools::find();
        if let Err(missing) = tools.check() {
            $crate::skip!("{missing}");
        }
        tools
    }};
}
