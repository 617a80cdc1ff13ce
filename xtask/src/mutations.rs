//! `cargo xtask mutations`: faults on purpose, to see that the simulator finds them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::{env, fs};

use clap::Args;
use parlor_testkit::simulation::Invariant;

use crate::failure::Failure;

/// Break the code on purpose, and print which invariant of the simulator fails and when
///
/// Applies each patch of crates/parlor-testkit/mutations to a copy of the work tree in target/mutations, builds the
/// simulator there, and runs seeds until an invariant fails. Fails if a patch does not apply, if a mutation is not found, or
/// if all mutations together leave an invariant unbroken.
#[derive(Args)]
pub(crate) struct Mutations {
    /// Run only these mutations, named like their patches
    names: Vec<String>,
    /// How many seeds are run before a mutation counts as not found
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// How many steps each seed takes
    #[arg(long, value_name = "N", default_value_t = 700)]
    steps: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// The root of the workspace.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The folder of the patches, from the root.
const PATCHES: &str = "crates/parlor-testkit/mutations";

/// What the simulator found.
struct Found {
    /// The invariant that failed; none if all held.
    invariant: Option<String>,
    seeds: String,
    steps: String,
    message: String,
}

/// A copy of the work tree that patches are applied to.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Mutations {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let patches = self.patches()?;
        let copy = Copy::new()?;
        // A patch that does not apply is reported before anything is built.
        patches.iter().try_for_each(|patch| copy.apply(patch, Some("--check")))?;
        let mut table = Table::new(&patches)?;
        let found = copy.simulate(&self)?;
        table.add("no mutation", &found)?;
        if let Some(invariant) = found.invariant {
            let message = format!(
                "the sources fail without any mutation ({invariant}: {}): fix that first",
                found.message
            );
            return Err(Failure::failed(message));
        }
        let mut unbroken: BTreeSet<_> = Invariant::ALL.iter().map(Invariant::to_string).collect();
        let mut missed = Vec::new();
        for patch in &patches {
            let name = name(patch);
            copy.apply(patch, None)?;
            let found = copy.simulate(&self);
            copy.apply(patch, Some("--reverse"))?;
            let found = found?;
            table.add(&name, &found)?;
            match found.invariant {
                Some(invariant) => drop(unbroken.remove(&invariant)),
                None => missed.push(name),
            }
        }
        if !missed.is_empty() {
            return Err(Failure::failed(format_args!("the simulator does not find {}", missed.join(", "))));
        }
        if self.names.is_empty() && !unbroken.is_empty() {
            let unbroken: Vec<_> = unbroken.into_iter().collect();
            let message = format!("no mutation breaks the invariants {}", unbroken.join(", "));
            return Err(Failure::failed(message));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The patches that are wanted, by name.
    fn patches(&self) -> Result<Vec<PathBuf>, Failure> {
        let folder = Path::new(WORKSPACE).join(PATCHES);
        let read = |error| Failure::failed(format_args!("cannot read {}: {error}", folder.display()));
        let mut patches = Vec::new();
        for entry in fs::read_dir(&folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|extension| extension == "patch") {
                patches.push(path);
            }
        }
        patches.sort_unstable();
        for name in &self.names {
            if !patches.iter().any(|patch| self::name(patch) == *name) {
                return Err(Failure::bad_input(format_args!("there is no {PATCHES}/{name}.patch")));
            }
        }
        patches.retain(|patch| self.names.is_empty() || self.names.contains(&name(patch)));
        Ok(patches)
    }
}

impl Copy {
    /// Copies the work tree. Files that are the same stay as they are, so that nothing is built without need.
    fn new() -> Result<Self, Failure> {
        let base = Path::new(WORKSPACE).join("target/mutations");
        let tree = base.join("tree");
        fs::create_dir_all(&tree).map_err(|error| cannot("create", &tree, &error))?;
        let tree = tree.canonicalize().map_err(|error| cannot("find", &tree, &error))?;
        let mut git = Command::new("git");
        git.args(["-C", WORKSPACE, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = output(&mut git)?;
        if !listed.status.success() {
            return Err(Failure::failed(format_args!("git ls-files failed: {}", stderr(&listed))));
        }
        let files: BTreeSet<PathBuf> =
            String::from_utf8_lossy(&listed.stdout).split_terminator('\0').map(PathBuf::from).collect();
        for file in &files {
            copy_if_changed(&Path::new(WORKSPACE).join(file), &tree.join(file))?;
        }
        remove_others(&tree, &tree, &files)?;
        Ok(Self { tree, target: base.join("target") })
    }

    /// Applies a patch, or with an option of `git apply` checks it or takes it back.
    fn apply(&self, patch: &Path, option: Option<&str>) -> Result<(), Failure> {
        let patch = patch.canonicalize().map_err(|error| cannot("find", patch, &error))?;
        let mut git = Command::new("git");
        // The copy is in a folder that the repository ignores: git is to see no repository.
        git.current_dir(&self.tree).env("GIT_CEILING_DIRECTORIES", self.tree.parent().unwrap_or(&self.tree));
        git.arg("apply").args(option).arg(&patch);
        let applied = output(&mut git)?;
        if applied.status.success() {
            return Ok(());
        }
        Err(Failure::failed(format_args!(
            "{} does not apply any more: rewrite it for the present sources\n{}",
            patch.display(),
            stderr(&applied)
        )))
    }

    /// Builds the simulator and runs it.
    fn simulate(&self, options: &Mutations) -> Result<Found, Failure> {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.tree).args(["build", "--quiet", "--package", "parlor-testkit"]);
        cargo.args(["--no-default-features", "--features", "simulation", "--example", "find_failure"]);
        // A mutation changes a few lines.
        cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "1");
        cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
        let built = output(&mut cargo)?;
        if !built.status.success() {
            return Err(Failure::failed(format_args!("the mutation does not compile:\n{}", stderr(&built))));
        }
        let mut program = Command::new(self.target.join("debug/examples/find_failure"));
        program.args([options.seed, options.seeds, options.steps].map(|number| number.to_string()));
        let ran = output(&mut program)?;
        let text = String::from_utf8_lossy(&ran.stdout);
        let mut parts = text.trim_end().splitn(4, '\t').map(str::to_owned);
        let (Some(invariant), Some(seeds), Some(steps), message) =
            (parts.next(), parts.next(), parts.next(), parts.next().unwrap_or_default())
        else {
            return Err(Failure::failed(format_args!("the simulator ended ({}): {text}", ran.status)));
        };
        let invariant = Some(invariant).filter(|invariant| invariant != "-");
        Ok(Found { invariant, seeds, steps, message })
    }
}

/// The table, printed row by row in Markdown.
struct Table {
    width: usize,
}

impl Table {
    fn new(patches: &[PathBuf]) -> Result<Self, Failure> {
        let width = patches.iter().map(|patch| name(patch).len()).max().unwrap_or_default().max(11);
        let table = Self { width };
        table.row("mutation", "invariant", "seeds", "steps")?;
        table.row(&"-".repeat(width), "-------------", "----:", "------:")?;
        Ok(table)
    }

    fn add(&mut self, name: &str, found: &Found) -> Result<(), Failure> {
        self.row(name, found.invariant.as_deref().unwrap_or("-"), &found.seeds, &found.steps)
    }

    fn row(&self, name: &str, invariant: &str, seeds: &str, steps: &str) -> Result<(), Failure> {
        let width = self.width;
        let mut out = anstream::stdout().lock();
        let written = writeln!(out, "| {name:width$} | {invariant:13} | {seeds:>5} | {steps:>7} |");
        written.and_then(|()| out.flush()).map_err(|error| Failure::writing(&error))
    }
}

fn name(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn copy_if_changed(from: &Path, to: &Path) -> Result<(), Failure> {
    // A file may be deleted and still listed.
    let Ok(content) = fs::read(from) else { return Ok(()) };
    if fs::read(to).is_ok_and(|there| there == content) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
    }
    fs::write(to, content).map_err(|error| cannot("write", to, &error))
}

/// Removes files of an earlier copy that are not in the work tree any more.
fn remove_others(folder: &Path, tree: &Path, files: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(|error| cannot("read", folder, &error))? {
        let path = entry.map_err(|error| cannot("read", folder, &error))?.path();
        if path.is_dir() {
            remove_others(&path, tree, files)?;
        } else if !path.strip_prefix(tree).is_ok_and(|file| files.contains(file)) {
            fs::remove_file(&path).map_err(|error| cannot("remove", &path, &error))?;
        }
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<Output, Failure> {
    let ran = command.stdin(Stdio::null()).output();
    ran.map_err(|error| {
        Failure::failed(format_args!("cannot run {}: {error}", command.get_program().display()))
    })
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format_args!("cannot {what} {}: {error}", path.display()))
}
