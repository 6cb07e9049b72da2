# Perl: reads its parameters from AUTOML_PARAMS or the arguments; here from the arguments.
use strict;
use warnings;

my %given = map { /^--(\w+)=(.+)$/ ? ($1 => $2) : () } @ARGV;
my $state = "$ENV{AUTOML_CHECKPOINT_DIR}/state";
my ($epoch, $x, $velocity) = (0, 5, 0);
if ($ENV{AUTOML_RESUME}) {
    open(my $file, '<', $state) or die "$state: $!";
    ($epoch, $x, $velocity) = split ' ', <$file>;
}
while ($epoch < 27 && !-e $ENV{AUTOML_STOP}) {
    $epoch++;
    $velocity = $given{momentum} * $velocity - $given{lr} * $x;
    $x += $velocity;
    open(my $file, '>', "$state.new") or die "$state.new: $!";
    print $file "$epoch $x $velocity\n";
    close($file);
    rename("$state.new", $state) or die "$state: $!";
    open(my $reports, '>>', $ENV{AUTOML_REPORTS}) or die "$ENV{AUTOML_REPORTS}: $!";
    printf $reports "{\"step\": %d, \"loss\": %.9g}\n", $epoch, $x * $x;
    close($reports);
}
