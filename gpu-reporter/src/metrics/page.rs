//! Writes the text exposition format.

use std::fmt::Write;

use super::names::OwnMetric;

/// A page in the making. Lines of one name must come one after the other.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    last: &'static str,
}

impl Page {
    pub(super) fn own(&mut self, metric: OwnMetric, labels: &[(&str, &str)], value: f64) {
        self.line(metric.name(), metric.kind(), metric.help(), labels, value);
    }

    /// A line of a metric that has several, such as the sum of a summary.
    pub(super) fn part(
        &mut self,
        metric: OwnMetric,
        suffix: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.head(metric.name(), metric.kind(), metric.help());
        self.series(&[metric.name(), suffix].concat(), labels, value);
    }

    pub(super) fn line(
        &mut self,
        name: &'static str,
        kind: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.head(name, kind, help);
        self.series(name, labels, value);
    }

    fn head(&mut self, name: &'static str, kind: &str, help: &str) {
        if self.last != name {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            self.last = name;
        }
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = self.try_series(name, labels, value);
    }

    fn try_series(&mut self, name: &str, labels: &[(&str, &str)], value: f64) -> std::fmt::Result {
        self.text.write_str(name)?;
        for (place, (key, text)) in labels.iter().enumerate() {
            self.text.write_str(if place == 0 { "{" } else { "," })?;
            write!(self.text, "{key}=\"")?;
            for c in text.chars() {
                match c {
                    '\\' => self.text.write_str("\\\\")?,
                    '"' => self.text.write_str("\\\"")?,
                    '\n' => self.text.write_str("\\n")?,
                    c => self.text.write_char(c)?,
                }
            }
            self.text.write_char('"')?;
        }
        if !labels.is_empty() {
            self.text.write_char('}')?;
        }
        writeln!(self.text, " {value}")
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_stands_once_per_name_and_labels_are_escaped() {
        let mut page = Page::default();
        page.line("a", "gauge", "What.", &[("k", "x\"y\\z\n")], 0.5);
        page.line("a", "gauge", "What.", &[], 3.0);
        assert_eq!(
            page.finish(),
            "# HELP a What.\n# TYPE a gauge\na{k=\"x\\\"y\\\\z\\n\"} 0.5\na 3\n"
        );
    }
}
