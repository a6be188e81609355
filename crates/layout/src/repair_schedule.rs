//! When anti-entropy repair runs: a calendar that cron and systemd both know.

use std::fmt;

const DAY_SECONDS: u64 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairSchedule {
    Daily,
    /// On Sundays.
    Weekly,
    /// On the first of the month.
    Monthly,
}

impl RepairSchedule {
    /// The rarest calendar that keeps the interval; 28 days and more are a month.
    pub fn within(interval_seconds: u64) -> RepairSchedule {
        match interval_seconds / DAY_SECONDS {
            0..7 => RepairSchedule::Daily,
            7..28 => RepairSchedule::Weekly,
            _ => RepairSchedule::Monthly,
        }
    }

    pub const fn longest_pause_seconds(self) -> u64 {
        match self {
            RepairSchedule::Daily => DAY_SECONDS,
            RepairSchedule::Weekly => 7 * DAY_SECONDS,
            RepairSchedule::Monthly => 31 * DAY_SECONDS,
        }
    }

    /// The first five fields of a crontab line.
    pub fn cron(self, hour: u32) -> String {
        match self {
            RepairSchedule::Daily => format!("0 {hour} * * *"),
            RepairSchedule::Weekly => format!("0 {hour} * * 0"),
            RepairSchedule::Monthly => format!("0 {hour} 1 * *"),
        }
    }

    /// The value of `OnCalendar=` in a systemd timer.
    pub fn on_calendar(self, hour: u32) -> String {
        match self {
            RepairSchedule::Daily => format!("*-*-* {hour:02}:00:00"),
            RepairSchedule::Weekly => format!("Sun *-*-* {hour:02}:00:00"),
            RepairSchedule::Monthly => format!("*-*-01 {hour:02}:00:00"),
        }
    }
}

impl fmt::Display for RepairSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RepairSchedule::Daily => "every day",
            RepairSchedule::Weekly => "every week",
            RepairSchedule::Monthly => "every month",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_becomes_a_calendar_that_keeps_it() {
        let within = |days: u64| RepairSchedule::within(days * DAY_SECONDS);
        assert_eq!(within(1), RepairSchedule::Daily);
        assert_eq!(within(6), RepairSchedule::Daily);
        assert_eq!(within(7), RepairSchedule::Weekly);
        assert_eq!(within(27), RepairSchedule::Weekly);
        assert_eq!(within(30), RepairSchedule::Monthly);
        assert_eq!(within(7).cron(2), "0 2 * * 0");
        assert_eq!(within(30).on_calendar(3), "*-*-01 03:00:00");
    }
}
