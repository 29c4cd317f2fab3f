//! `ideal RUN --plot FILE`: writes the drawing.

use std::path::Path;

use anyhow::Context;
use tailsight_ideal::Ideal;

/// Writes measured against ideal as SVG.
pub fn write(file: &Path, ideal: &Ideal) -> anyhow::Result<()> {
    let svg = tailsight_report::plot::ideal(ideal)?;
    tailsight_output::write(file, svg).with_context(|| format!("cannot write the drawing {}", file.display()))
}
