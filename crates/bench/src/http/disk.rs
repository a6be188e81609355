//! What the disk and the kernel say: the price of one sync, bytes of a directory, memory of a process.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use hdrhistogram::Histogram;

const RECORD_BYTES: usize = 400;

/// p99 in milliseconds of an append of one record to a growing file, synced.
pub fn sync_p99_ms(path: &Path, appends: u64) -> anyhow::Result<f64> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    let mut micros = Histogram::<u64>::new(3)?;
    let record = [b'x'; RECORD_BYTES];
    for _ in 0..appends {
        let begun = Instant::now();
        file.write_all(&record)?;
        file.sync_data()?;
        micros.record(u64::try_from(begun.elapsed().as_micros())?.max(1))?;
    }
    std::fs::remove_file(path)?;
    Ok(micros.value_at_quantile(0.99) as f64 / 1000.0)
}

/// What the files of a directory take, holes left out.
pub fn directory_bytes(path: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
        let entry = entry?;
        // A file that the server's background work removes meanwhile takes nothing.
        let Ok(found) = entry.metadata() else {
            continue;
        };
        bytes += if found.is_dir() {
            directory_bytes(&entry.path())?
        } else {
            found.blocks() * 512
        };
    }
    Ok(bytes)
}

pub fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    status_bytes(process, "VmRSS:")
}

/// The most that it ever had.
pub fn resident_most_bytes(process: u32) -> anyhow::Result<u64> {
    status_bytes(process, "VmHWM:")
}

fn status_bytes(process: u32, line: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let kilobytes: u64 = status
        .lines()
        .find_map(|told| told.strip_prefix(line))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok())
        .with_context(|| format!("{path} does not say {line}"))?;
    Ok(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_memory_and_its_files_take_room() {
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join("deep/file"), vec![1; 100_000]).unwrap();
        let bytes = directory_bytes(folder.path()).unwrap();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        let p99 = sync_p99_ms(&folder.path().join("log"), 5).unwrap();
        assert!(p99 > 0.0);
    }
}
