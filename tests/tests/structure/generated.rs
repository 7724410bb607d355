//! JSON schemas and the reference tables of README.md are what the code says.
//!
//! `UPDATE=1 cargo test -p tidegate-tests --test structure generated::`, which is what `cargo xtask gen`
//! runs, rewrites them; without it these tests fail where a file differs. A table stands between
//! `<!-- table: NAME -->` and `<!-- end -->`.

use anyhow::{Context, Result, ensure};
use tidegate_control_plane::config::Limits;
use tidegate_control_plane::metrics::{Kind, Name};
use tidegate_gpu_reporter::metrics::{GpuMetric, OwnMetric};
use tidegate_strict::Shape;

use crate::support::{root, text};

/// Configurations by the name of their schema.
fn shapes() -> Result<[(&'static str, Shape); 5]> {
    let limits = Limits::defaults().map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    Ok([
        ("filter", tidegate_policy::config::shape()),
        ("control-plane", tidegate_control_plane::config::shape()),
        ("fleet", tidegate_control_plane::discovery::file::shape(&limits)),
        ("reporter", tidegate_reporter_config::shape()),
        ("workloads", tidegate_reporter_config::workloads_shape()),
    ])
}

/// Compares, or rewrites when asked to.
fn settle(path: &str, fresh: &str) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the switch of `cargo xtask gen`")]
    let update = std::env::var_os("UPDATE").is_some();
    let file = root().join(path);
    if update {
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        return std::fs::write(&file, fresh).with_context(|| format!("writing {path}"));
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    ensure!(found == fresh, "{path} is not what the code says: run `cargo xtask gen`");
    Ok(())
}

#[test]
fn schemas_are_fresh() -> Result<()> {
    for (name, shape) in shapes()? {
        let schema = shape.json_schema(&format!("Tidegate: {name}"));
        let text = format!("{}\n", serde_json::to_string_pretty(&schema)?);
        settle(&format!("istio/schemas/{name}.schema.json"), &text)?;
    }
    Ok(())
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let rule = vec!["---".to_owned(); head.len()];
    let mut text = line(&head) + &line(&rule);
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text.push_str(&line(&cells));
    }
    text
}

fn configuration(shape: &Shape) -> String {
    let rows: Vec<Vec<String>> = shape
        .rows()
        .into_iter()
        .map(|[path, what, default, meaning]| {
            let default = match default.as_str() {
                "required" | "none" => default,
                "an object" => "the defaults below".to_owned(),
                "a list of 0" => "empty".to_owned(),
                _ => format!("`{default}`"),
            };
            vec![format!("`{path}`"), what, default, meaning]
        })
        .collect();
    table(&["field", "what may stand there", "default", "meaning"], &rows)
}

fn control_plane_metrics() -> String {
    let rows: Vec<Vec<String>> = Name::ALL
        .iter()
        .map(|name| {
            let (suffix, kind) = match name.kind() {
                Kind::Gauge => ("", "gauge"),
                Kind::Counter => ("_total", "counter"),
            };
            vec![format!("`{}{suffix}`", name.as_str()), kind.into(), name.help().into()]
        })
        .collect();
    table(&["metric", "kind", "meaning"], &rows)
}

fn gpu_figures() -> String {
    let rows: Vec<Vec<String>> = GpuMetric::ALL
        .iter()
        .map(|metric| {
            let alias = metric.alias().map_or_else(String::new, |(name, _)| format!("`{name}`"));
            let (name, unit) = (metric.name(), unit_of(metric.name()));
            vec![format!("`{name}`"), unit.into(), metric.help().into(), alias]
        })
        .collect();
    table(&["metric", "unit", "meaning", "dcgm-exporter's name, in its unit"], &rows)
}

/// Names end in their unit; those that do not are counts, codes or flags.
fn unit_of(metric: &str) -> &'static str {
    let units = [
        ("_ratio", "0 to 1"),
        ("_bytes", "bytes"),
        ("_bytes_per_second", "bytes/s"),
        ("_celsius", "°C"),
        ("_watts", "W"),
        ("_joules_total", "J"),
        ("_hertz", "Hz"),
        ("_reasons", "bits"),
        ("_state", "code"),
        ("_action", "code"),
        ("_xid_last", "code"),
        ("_pending", "0 or 1"),
        ("_failure", "0 or 1"),
    ];
    units.iter().find(|(ending, _)| metric.ends_with(ending)).map_or("count", |(_, unit)| unit)
}

fn reporter_metrics() -> String {
    let row = |metric: &OwnMetric| {
        vec![format!("`{}`", metric.name()), metric.kind().into(), metric.help().into()]
    };
    let rows: Vec<Vec<String>> = OwnMetric::ALL.iter().map(row).collect();
    table(&["metric", "kind", "meaning"], &rows)
}

/// Read from the text of the filter, since nothing may depend on it: the comment of each variant, and the
/// name and label that two matches give it.
fn filter_metrics() -> Result<String> {
    let code = text("filter/src/stats.rs")?;
    let part = |from: &str, to: &str| {
        let rest = code.split_once(from).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once(to))
            .map(|(part, _)| part)
            .context("filter/src/stats.rs")
    };
    let names = part("fn name(self)", "\n    }\n")?;
    let labels = part("fn label(self)", "\n    }\n")?;
    let mut rows = Vec::new();
    let mut meaning = String::new();
    for line in part("pub enum Metric {\n", "\n}\n")?.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("/// ") {
            meaning = format!("{meaning} {comment}").trim().to_owned();
            continue;
        }
        let variant = line.trim_end_matches(',');
        let arm =
            names.lines().find(|line| line.trim().starts_with(&format!("Self::{variant} =>")));
        let name = arm.and_then(|arm| arm.split('"').nth(1)).context("a metric without a name")?;
        let label = label_of(labels, variant);
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        rows.push(vec![format!("`{name}`"), kind.into(), label, std::mem::take(&mut meaning)]);
    }
    ensure!(rows.len() >= 10, "only {} metrics found", rows.len());
    Ok(table(&["metric", "kind", "label", "meaning"], &rows))
}

/// The label in the arm that names the variant: `Self::A | Self::B => Some("label")`.
fn label_of(labels: &str, variant: &str) -> String {
    let parts: Vec<&str> = labels.split("=>").collect();
    let names = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == variant);
    let value = parts.windows(2).find(|pair| names(pair[0])).map(|pair| pair[1].trim_start());
    let some = value.filter(|value| value.starts_with("Some") || value.starts_with('{'));
    some.and_then(|value| value.split('"').nth(1))
        .map_or_else(String::new, |label| format!("`{label}`"))
}

#[test]
fn tables_of_the_readme_are_fresh() -> Result<()> {
    let mut readme = text("README.md")?;
    let mut tables = vec![
        ("filter metrics".to_owned(), filter_metrics()?),
        ("control-plane metrics".to_owned(), control_plane_metrics()),
        ("GPU figures".to_owned(), gpu_figures()),
        ("reporter metrics".to_owned(), reporter_metrics()),
    ];
    for (name, shape) in shapes()? {
        tables.push((format!("{name} configuration"), configuration(&shape)));
    }
    for (name, fresh) in tables {
        let mark = format!("<!-- table: {name} -->\n");
        let (before, rest) = readme.split_once(&mark).with_context(|| format!("no {mark}"))?;
        let (_, after) = rest.split_once("<!-- end -->").context("no <!-- end -->")?;
        readme = format!("{before}{mark}\n{fresh}\n<!-- end -->{after}");
    }
    settle("README.md", &readme)
}

#[test]
fn labels_are_read_from_the_arms() {
    let labels = r#"match self {
        Self::A => Some("x"),
        Self::B | Self::C => { Some("y") }
        Self::D | Self::E => None,
    }"#;
    for (variant, label) in [("A", "`x`"), ("B", "`y`"), ("C", "`y`"), ("D", ""), ("E", "")] {
        assert_eq!(label_of(labels, variant), label, "{variant}");
    }
}

#[test]
fn a_cell_cannot_break_its_table() {
    assert_eq!(table(&["a"], &[vec!["x|y".into()]]), "| a |\n| --- |\n| x\\|y |\n");
}
